"""Two host pools whose sequences live and grow together: KV, and the index keys beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from batchgen.kv.host import HostPagedKVWorkerView, LayerEntry
from batchgen.kv.host_sequences import Ints, as_ints
from batchgen.kv.pool import KVPoolConfig, KVStats, PagePointers
from batchgen.kv.tasks import AsyncTask, DualAsyncLoadTask


class DualHostKVCoordinator:
    """Mirrors registration and pages on `primary` and `auxiliary`, which must have equal page size and count.

    Sequences hold equally many pages in both; the page ids differ, since other ranks of the node take pages
    between the two calls. What the auxiliary refuses is taken back on the primary. Copies of keys and values
    go to the primary; those of the index keys are asked of `.auxiliary`.
    """

    def __init__(self, primary: HostPagedKVWorkerView, auxiliary: HostPagedKVWorkerView) -> None:
        self._names = f"host KV pools {primary.config.name!r} and {auxiliary.config.name!r}"
        for field in ("num_pages", "page_size"):
            ours, theirs = getattr(primary.config, field), getattr(auxiliary.config, field)
            if ours != theirs:
                raise ValueError(f"{self._names} cannot be mirrored: {field} is {ours} and {theirs}")
        self.primary = primary
        self.auxiliary = auxiliary

    @property
    def config(self) -> KVPoolConfig:
        return self.primary.config

    def close(self) -> None:
        try:
            self.primary.close()
        finally:
            self.auxiliary.close()

    # sequences and pages

    def register_sequences(self, sequence_ids: Ints) -> None:
        """ValueError when either pool knows one already; then none is registered."""
        ids = as_ints(sequence_ids)
        self.primary.register_sequences(ids)
        self._mirror(
            lambda: self.auxiliary.register_sequences(ids), lambda: self.primary.unregister_sequences(ids)
        )

    def unregister_sequences(self, sequence_ids: Ints) -> None:
        """KeyError, or RuntimeError for one that holds pages; then nothing changes."""
        ids = as_ints(sequence_ids)
        self.primary.unregister_sequences(ids)
        self._mirror(
            lambda: self.auxiliary.unregister_sequences(ids), lambda: self.primary.register_sequences(ids)
        )

    def allocate_pages_for_sequences(self, items: Sequence[tuple[int, int]]) -> None:
        """items: (sequence id, TOKENS); atomic over both pools. KVExhausted names the pool that is full."""
        self._take(HostPagedKVWorkerView.allocate_pages_for_sequences, items)

    def grow_pages_for_sequences(self, items: Sequence[tuple[int, int]]) -> None:
        """items: (sequence id, PAGES to add); atomic over both pools."""
        self._take(HostPagedKVWorkerView.grow_pages_for_sequences, items)

    def _take(
        self,
        take: Callable[[HostPagedKVWorkerView, Sequence[tuple[int, int]]], None],
        items: Sequence[tuple[int, int]],
    ) -> None:
        held = {gid: self.primary.page_count(gid) for gid, _ in items}
        take(self.primary, items)

        def undo() -> None:
            for gid, count in reversed(held.items()):
                self.primary.shrink_pages_for_sequence(gid, count)

        self._mirror(lambda: take(self.auxiliary, items), undo)

    def release_sequence_pages(self, sequence_ids: Ints) -> None:
        """Free and unregister in both pools. KeyError on an id unknown to either, before anything changes."""
        ids = as_ints(sequence_ids)
        for pool in (self.primary, self.auxiliary):
            pool.check_known(ids)
        self.primary.release_sequence_pages(ids)
        self.auxiliary.release_sequence_pages(ids)

    @staticmethod
    def _mirror(change_auxiliary: Callable[[], None], undo_primary: Callable[[], None]) -> None:
        try:
            change_auxiliary()
        except BaseException:
            undo_primary()
            raise

    def has_sequence(self, gid: int) -> bool:
        return self.primary.has_sequence(gid)

    def page_count(self, gid: int) -> int:
        """KeyError when not registered."""
        return self.primary.page_count(gid)

    def sequence_ids(self) -> list[int]:
        return self.primary.sequence_ids()

    def get_stats(self) -> KVStats:
        """The primary's counters, which are the auxiliary's too."""
        return self.primary.get_stats()

    def build_page_table(self, sequence_ids: Ints) -> torch.Tensor:
        """The primary's: int32 CPU [n, most pages], padded with -1."""
        return self.primary.build_page_table(sequence_ids)

    # copies of keys and values

    def async_offload_layer_kv_range_to_host(
        self,
        layer_idx: int,
        sequence_ids: Ints,
        k: torch.Tensor,
        v: torch.Tensor | None,
        cu_seqlens: Ints,
        start_positions: Ints,
    ) -> AsyncTask:
        return self.primary.async_offload_layer_kv_range_to_host(
            layer_idx, sequence_ids, k, v, cu_seqlens, start_positions
        )

    def async_append_decode_kv_to_host(
        self,
        layer_idx: int,
        sequence_ids: Ints,
        k_tensor: torch.Tensor,
        v_tensor: torch.Tensor | None,
        sequence_lengths: Ints,
    ) -> AsyncTask:
        return self.primary.async_append_decode_kv_to_host(
            layer_idx, sequence_ids, k_tensor, v_tensor, sequence_lengths
        )

    def async_append_decode_kv_to_host_batched_kernel(
        self, entries: Sequence[LayerEntry], sequence_ids: Ints, sequence_lengths: Ints
    ) -> AsyncTask:
        return self.primary.async_append_decode_kv_to_host_batched_kernel(
            entries, sequence_ids, sequence_lengths
        )

    def async_load_layer_paged_kv_to_device(
        self,
        sequence_ids: Ints,
        active_page_counts: Ints,
        k_ptrs: PagePointers,
        v_ptrs: PagePointers | None,
    ) -> AsyncTask:
        return self.primary.async_load_layer_paged_kv_to_device(
            sequence_ids, active_page_counts, k_ptrs, v_ptrs
        )

    def async_load_dual(
        self,
        sequence_ids: Ints,
        active_page_counts: Ints,
        k_ptrs: PagePointers,
        v_ptrs: PagePointers | None,
        aux_k_ptrs: PagePointers,
    ) -> DualAsyncLoadTask:
        """Load keys, values and index keys. Errors as for a single load; nothing is left running then."""
        first = self.primary.async_load_layer_paged_kv_to_device(
            sequence_ids, active_page_counts, k_ptrs, v_ptrs
        )
        try:
            second = self.auxiliary.async_load_layer_paged_kv_to_device(
                sequence_ids, active_page_counts, aux_k_ptrs, None
            )
        except BaseException:
            first.wait()
            raise
        return DualAsyncLoadTask(first, second)

    def read_sequence_kv_to_cpu(self, gid: int, num_tokens: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        return self.primary.read_sequence_kv_to_cpu(gid, num_tokens)

    def write_sequence_kv_from_cpu(self, gid: int, k: torch.Tensor, v: torch.Tensor | None) -> None:
        self.primary.write_sequence_kv_from_cpu(gid, k, v)

    def check_invariants(self) -> None:
        """The invariants of both pools, and that sequences hold equally many pages in both."""
        self.primary.check_invariants()
        self.auxiliary.check_invariants()
        ours, theirs = (
            {gid: pool.page_count(gid) for gid in pool.sequence_ids()}
            for pool in (self.primary, self.auxiliary)
        )
        for gid in sorted(ours.keys() | theirs.keys()):
            if ours.get(gid) != theirs.get(gid):
                raise AssertionError(
                    f"{self._names}: sequence {gid} holds {ours.get(gid)} and {theirs.get(gid)} pages"
                )
