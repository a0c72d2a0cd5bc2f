"""The host KV pool of a node as one rank sees it: pages of its own sequences, asynchronous copies."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from batchgen.kv.host_segment import HostSegment, private_segment
from batchgen.kv.host_sequences import HostSequences, Ints, as_ints
from batchgen.kv.pool import KVPoolConfig, PagePointers
from batchgen.kv.rendezvous import attach_shared, create_shared, rendezvous_path
from batchgen.kv.tasks import AsyncTask, TaskQueue
from batchgen.kv.transfer import DeviceTransfers

LayerEntry = tuple[int, torch.Tensor, torch.Tensor | None]


def open_host_pool(
    config: KVPoolConfig,
    *,
    node_id: int,
    local_rank: int,
    local_world: int,
    session: str,
    attach_timeout: float = 60.0,
) -> HostPagedKVWorkerView:
    """This rank's view of the host pool of its node.

    With one local rank the pool is plain memory. With several it is shared: local rank 0 makes it, the others
    attach (TimeoutError after `attach_timeout` seconds, ValueError when their configurations differ).
    `session` tells runs on the same machine apart.
    """
    if not 0 <= local_rank < local_world:
        raise ValueError(
            f"host KV pool {config.name!r}: local rank {local_rank} is not in 0..{local_world - 1}"
        )
    if local_world == 1:
        segment = private_segment(config)
    else:
        meeting = rendezvous_path(session, node_id, config.name)
        if local_rank == 0:
            segment = create_shared(config, meeting, local_world)
        else:
            segment = attach_shared(config, meeting, local_world, attach_timeout)
    return HostPagedKVWorkerView(config, segment, local_rank)


class HostPagedKVWorkerView(HostSequences):
    """Sequences of one rank in the host pool of its node.

    Page ids come from the shared LIFO free list. Positions are turned into page slots, and all arguments are
    checked, in the calling thread; the copies then run in the order of the calls, so that a load sees every
    append before it. Reads, writes and releases first wait for the copies under way: no task ever writes into
    a page that has gone to another sequence.
    """

    def __init__(self, config: KVPoolConfig, segment: HostSegment, local_rank: int) -> None:
        super().__init__(config, segment, local_rank)
        self._tasks = TaskQueue(f"{self._label} copies")
        self._transfers = DeviceTransfers()

    def close(self) -> None:
        """Finish the copies, give this rank's pages back, let go of the memory. Idempotent."""
        self._tasks.close()
        super().close()

    def _give_back(self, pages: Sequence[int]) -> None:
        self._tasks.drain()
        super()._give_back(pages)

    # device to host

    def async_offload_layer_kv_range_to_host(
        self,
        layer_idx: int,
        sequence_ids: Ints,
        k: torch.Tensor,
        v: torch.Tensor | None,
        cu_seqlens: Ints,
        start_positions: Ints,
    ) -> AsyncTask:
        """Prefill: k, v [T, heads, dim] packed by `cu_seqlens` [B + 1].

        Token j of sequence i goes to position `start_positions[i] + j`. Errors as for the decode append.
        """
        ids, bounds, starts = as_ints(sequence_ids), as_ints(cu_seqlens), as_ints(start_positions)
        lengths = [end - begin for begin, end in itertools.pairwise(bounds)]
        if len(lengths) != len(ids) or len(starts) != len(ids) or min(lengths, default=0) < 0:
            raise ValueError(
                f"{self._label}: {len(ids)} sequences need {len(ids) + 1} growing cu_seqlens and "
                f"{len(ids)} start positions, got {bounds} and {starts}"
            )
        last = [start + length - 1 for start, length in zip(starts, lengths, strict=True)]
        self.check_positions(ids, starts, last)
        return self._write([(layer_idx, k, v)], self.slots_of_ranges(ids, starts, lengths))

    def async_append_decode_kv_to_host(
        self,
        layer_idx: int,
        sequence_ids: Ints,
        k_tensor: torch.Tensor,
        v_tensor: torch.Tensor | None,
        sequence_lengths: Ints,
    ) -> AsyncTask:
        """Decode, one layer: row i of k, v [B, heads, dim] goes to position `sequence_lengths[i]` (0-based).

        RuntimeError for an unknown sequence, a negative position or one beyond the sequence's pages;
        ValueError for tensors that do not fit the pool. Leave the tensors alone until the task is done.
        """
        return self.async_append_decode_kv_to_host_batched_kernel(
            [(layer_idx, k_tensor, v_tensor)], sequence_ids, sequence_lengths
        )

    def async_append_decode_kv_to_host_batched_kernel(
        self, entries: Sequence[LayerEntry], sequence_ids: Ints, sequence_lengths: Ints
    ) -> AsyncTask:
        """Decode, all layers in one task: entries are (layer, k, v or None). Errors as for one layer."""
        ids, positions = as_ints(sequence_ids), as_ints(sequence_lengths)
        if len(ids) != len(positions):
            raise ValueError(f"{self._label}: {len(ids)} sequences but {len(positions)} write positions")
        self.check_positions(ids, positions, positions)
        return self._write(entries, self.slots_of_positions(ids, positions))

    def _write(self, entries: Sequence[LayerEntry], slots: torch.Tensor) -> AsyncTask:
        for layer, k, v in entries:
            self._check_entry(layer, k, v, len(slots))
        segment, tokens = self._segment, self.config.num_pages * self.config.page_size
        if len(entries) == 0 or len(slots) == 0:
            return self._tasks.submit(lambda: None)
        layers = torch.tensor([layer for layer, _, _ in entries], dtype=torch.int64)
        rows = (layers[:, None] * tokens + slots).flatten()
        width = self.config.num_kv_heads * self.config.head_dim
        fetch_k = self._transfers.to_host([k for _, k, _ in entries], width)
        values = [v for _, _, v in entries if v is not None]
        fetch_v = self._transfers.to_host(values, width) if values else None

        def scatter() -> None:
            segment.keys.view(-1, width).index_copy_(0, rows, fetch_k())
            if fetch_v is not None and segment.values is not None:
                segment.values.view(-1, width).index_copy_(0, rows, fetch_v())

        return self._tasks.submit(scatter)

    def _check_entry(self, layer: int, k: torch.Tensor, v: torch.Tensor | None, rows: int) -> None:
        c = self.config
        if not 0 <= layer < c.num_layers:
            raise ValueError(f"{self._label}: layer {layer} is not in 0..{c.num_layers - 1}")
        if (v is not None) != c.has_value:
            raise ValueError(f"{self._label}: the pool {'needs' if c.has_value else 'has no'} values")
        for tensor in (k,) if v is None else (k, v):
            if (
                tensor.shape[:1] != (rows,)
                or tensor.shape[1:].numel() != c.num_kv_heads * c.head_dim
                or tensor.dtype != c.dtype
            ):
                raise ValueError(
                    f"{self._label}: layer {layer} got {tuple(tensor.shape)} {tensor.dtype}, must be "
                    f"{(rows, c.num_kv_heads, c.head_dim)} {c.dtype}"
                )

    # host to device

    def async_load_layer_paged_kv_to_device(
        self,
        sequence_ids: Ints,
        active_page_counts: Ints,
        k_ptrs: PagePointers,
        v_ptrs: PagePointers | None,
    ) -> AsyncTask:
        """All layers: the first `active_page_counts[i]` host pages of sequence i into `page_ids[i]`.

        RuntimeError when a sequence is unknown or a count exceeds the pages on either side; ValueError when
        the target does not fit the pool.
        """
        ids, counts = as_ints(sequence_ids), as_ints(active_page_counts)
        targets = [k_ptrs] if v_ptrs is None else [k_ptrs, v_ptrs]
        if (v_ptrs is not None) != self.config.has_value:
            raise ValueError(
                f"{self._label}: the pool {'needs' if self.config.has_value else 'has no'} values"
            )
        sources = [t for t in (self._segment.keys, self._segment.values) if t is not None]
        for source, target in zip(sources, targets, strict=True):
            storage = target.storage
            if (storage.shape[:1] + storage.shape[2:], storage.dtype) != (
                source.shape[:1] + source.shape[2:],
                source.dtype,
            ):
                raise ValueError(
                    f"{self._label}: pages {tuple(source.shape)} {source.dtype} cannot be loaded into "
                    f"{tuple(storage.shape)} {storage.dtype}"
                )
        host_pages = torch.tensor(self._first_pages(ids, counts), dtype=torch.int64)
        copies = [
            self._transfers.pages_to_device(
                source, host_pages, target.storage, self._target_pages(ids, counts, target)
            )
            for source, target in zip(sources, targets, strict=True)
        ]

        def load() -> None:
            for copy in copies:
                copy()

        return self._tasks.submit(load)

    def _first_pages(self, ids: Sequence[int], counts: Sequence[int]) -> list[int]:
        pages: list[int] = []
        if len(ids) != len(counts):
            raise ValueError(f"{self._label}: {len(ids)} sequences but {len(counts)} page counts")
        for gid, count in zip(ids, counts, strict=True):
            held = self._pages.get(gid)
            if held is None or not 0 <= count <= len(held):
                raise RuntimeError(
                    f"{self._label}: cannot load {count} pages of sequence {gid}, "
                    + ("it is not registered" if held is None else f"it has {len(held)} on the host")
                )
            pages += held[:count]
        return pages

    def _target_pages(self, ids: Sequence[int], counts: Sequence[int], target: PagePointers) -> torch.Tensor:
        table = target.page_ids.tolist()
        if len(table) != len(ids):
            raise RuntimeError(f"{self._label}: {len(ids)} sequences but load targets for {len(table)}")
        pages: list[int] = []
        for gid, count, row in zip(ids, counts, table, strict=True):
            chosen = row[:count]
            if len(chosen) < count or any(not 0 <= page < target.storage.shape[1] for page in chosen):
                raise RuntimeError(
                    f"{self._label}: sequence {gid} has {count} pages to load, its target row is {row}"
                )
            pages += chosen
        return torch.tensor(pages, dtype=torch.int64)

    # whole sequences, synchronously

    def read_sequence_kv_to_cpu(self, gid: int, num_tokens: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(k, v) copies [layers, num_tokens, heads, dim]. RuntimeError when the sequence has no such room."""
        self.check_positions([gid], [0], [num_tokens - 1])
        self._tasks.drain()
        pages = torch.tensor(self._pages[gid][: self.config.pages_for(num_tokens)], dtype=torch.int64)

        def gather(cache: torch.Tensor) -> torch.Tensor:
            return cache.index_select(1, pages).flatten(1, 2)[:, :num_tokens].contiguous()

        values = self._segment.values
        return gather(self._segment.keys), None if values is None else gather(values)

    def write_sequence_kv_from_cpu(self, gid: int, k: torch.Tensor, v: torch.Tensor | None) -> None:
        """k, v [layers, tokens, heads, dim] become the sequence's positions 0.. . Errors as for appends."""
        tokens = k.shape[1]
        self.check_positions([gid], [0], [tokens - 1])
        if k.shape[0] != self.config.num_layers or (v is not None and v.shape[0] != self.config.num_layers):
            raise ValueError(f"{self._label}: got {k.shape[0]} layers, the pool has {self.config.num_layers}")
        entries = [(layer, k[layer], None if v is None else v[layer]) for layer in range(k.shape[0])]
        self._write(entries, self.slots_of_ranges([gid], [0], [tokens])).wait()
