"""Two GPU pools that move in lockstep: the KV pool and the index-key pool beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from batchgen.kv.gpu import GPUPagedKVCacheManager
from batchgen.kv.pool import KVPoolConfig, KVStats, PagePointers


class DualKVCacheCoordinator:
    """Mirrors every page operation on `primary` and `auxiliary`, so that both hold the same page ids.

    Operations are checked on both pools before either changes, and taken back on the first when the second
    still fails. The pools must have equal `num_pages`, `page_size` and table sizes: ValueError otherwise.
    Whoever changes one pool alone breaks the mirror; the next operation says so with a RuntimeError.
    """

    def __init__(self, primary: GPUPagedKVCacheManager, auxiliary: GPUPagedKVCacheManager) -> None:
        for field in ("num_pages", "page_size", "max_slots", "graph_max_slots", "graph_max_pages"):
            ours, theirs = getattr(primary.config, field), getattr(auxiliary.config, field)
            if ours != theirs:
                raise ValueError(
                    f"KV pools {primary.config.name!r} and {auxiliary.config.name!r} cannot be mirrored: "
                    f"{field} is {ours} and {theirs}"
                )
        self.primary = primary
        self.auxiliary = auxiliary
        self._names = f"KV pools {primary.config.name!r} and {auxiliary.config.name!r}"

    # life cycle

    @property
    def is_initialized(self) -> bool:
        return self.primary.is_initialized and self.auxiliary.is_initialized

    def initialize(self) -> None:
        """Both pools or none: when the second does not fit into memory the first is dropped again."""
        fresh = not self.primary.is_initialized
        self.primary.initialize()
        try:
            self.auxiliary.initialize()
        except BaseException:
            if fresh:
                self.primary.destroy()
            raise

    def destroy(self) -> None:
        self.primary.destroy()
        self.auxiliary.destroy()

    # what the worker looks at: the primary's

    @property
    def config(self) -> KVPoolConfig:
        return self.primary.config

    @property
    def device(self) -> torch.device:
        return self.primary.device

    @property
    def slot_to_seq_id(self) -> list[int]:
        return self.primary.slot_to_seq_id

    @property
    def gpu_table(self) -> torch.Tensor:
        return self.primary.gpu_table

    @property
    def rebuild_version(self) -> int:
        return self.primary.rebuild_version

    @property
    def scratch_page_id(self) -> int:
        return self.primary.scratch_page_id

    @property
    def _sequences(self) -> dict[int, list[int]]:
        return self.primary._sequences

    def sequence_ids(self) -> list[int]:
        return self.primary.sequence_ids()

    def has_sequence(self, sequence_id: int) -> bool:
        return self.primary.has_sequence(sequence_id)

    def num_pages_of(self, sequence_id: int) -> int:
        """KeyError when the sequence is not allocated."""
        return self.primary.num_pages_of(sequence_id)

    def get_stats(self) -> KVStats:
        """The primary's counters, which are the auxiliary's too."""
        return self.primary.get_stats()

    # pages

    def allocate_pages_for_sequences(
        self, sequence_ids: Sequence[int], num_tokens: Sequence[int]
    ) -> dict[int, list[int]]:
        """As on a single pool, on both; atomic over both. KVExhausted names the pool that is full."""
        for pool in (self.primary, self.auxiliary):
            pool.check_allocate(sequence_ids, num_tokens)
        taken = self.primary.allocate_pages_for_sequences(sequence_ids, num_tokens)
        with self._undo_on_error(taken, new=True):
            mirrored = self.auxiliary.allocate_pages_for_sequences(sequence_ids, num_tokens)
        return self._same_pages(taken, mirrored, new=True)

    def grow_pages_for_sequences(
        self, sequence_ids: Sequence[int], num_pages: Sequence[int]
    ) -> dict[int, list[int]]:
        """As on a single pool, on both; atomic over both."""
        for pool in (self.primary, self.auxiliary):
            pool.check_grow(sequence_ids, num_pages)
        taken = self.primary.grow_pages_for_sequences(sequence_ids, num_pages)
        with self._undo_on_error(taken, new=False):
            mirrored = self.auxiliary.grow_pages_for_sequences(sequence_ids, num_pages)
        return self._same_pages(taken, mirrored, new=False)

    def extend_pages_for_sequence(self, sequence_id: int, total_tokens: int) -> list[int]:
        """Make the sequence cover `total_tokens` in both pools; returns the new pages, if any."""
        missing = self.primary.pages_to_extend(sequence_id, total_tokens)
        return self.grow_pages_for_sequences([sequence_id], [missing])[sequence_id]

    @contextmanager
    def _undo_on_error(self, taken: dict[int, list[int]], *, new: bool) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.primary.undo_take(taken, new=new)
            raise

    def _same_pages(
        self, taken: dict[int, list[int]], mirrored: dict[int, list[int]], *, new: bool
    ) -> dict[int, list[int]]:
        if taken == mirrored:
            return taken
        self.primary.undo_take(taken, new=new)
        self.auxiliary.undo_take(mirrored, new=new)
        sid = next(sid for sid in taken if taken[sid] != mirrored[sid])
        raise RuntimeError(
            f"{self._names} are no longer mirrored: sequence {sid} would get pages {taken[sid]} and "
            f"{mirrored[sid]}; one of them was changed alone"
        )

    def free_pages_for_sequences(self, sequence_ids: Sequence[int]) -> None:
        """Free in both pools. KeyError on an id unknown to either, or repeated, before anything is freed."""
        for pool in (self.primary, self.auxiliary):
            pool.check_free(sequence_ids)
        self.primary.free_pages_for_sequences(sequence_ids)
        self.auxiliary.free_pages_for_sequences(sequence_ids)

    def pages_of(self, sequence_id: int) -> list[int]:
        return self.primary.pages_of(sequence_id)

    def regroup_pages(self, old: Sequence[int], new: Mapping[int, Sequence[int]]) -> None:
        """As on a single pool, on both; checked on both before either changes."""
        for pool in (self.primary, self.auxiliary):
            pool.check_regroup(old, new)
        self.primary.regroup_pages(old, new)
        self.auxiliary.regroup_pages(old, new)

    # page table

    def rebuild_page_table(self, sequence_ids: Sequence[int]) -> None:
        """Rebuild both tables; when the auxiliary refuses, the primary gets its former rows back."""
        former = self.primary.save_page_table()
        self.primary.rebuild_page_table(sequence_ids)
        try:
            self.auxiliary.rebuild_page_table(sequence_ids)
        except BaseException:
            self.primary.restore_page_table(former)
            raise

    def clear_page_table(self) -> None:
        self.primary.clear_page_table()
        self.auxiliary.clear_page_table()

    def page_table_for_rows(self, num_rows: int) -> torch.Tensor:
        return self.primary.page_table_for_rows(num_rows)

    def export_active_sequence_page_counts(self) -> torch.Tensor:
        return self.primary.export_active_sequence_page_counts()

    def ensure_cuda_graph_page_table(self) -> torch.Tensor:
        """The primary's graph page table; the auxiliary's exists afterwards as well."""
        self.auxiliary.ensure_cuda_graph_page_table()
        return self.primary.ensure_cuda_graph_page_table()

    def get_cuda_graph_page_table(self) -> torch.Tensor:
        """Fill both graph page tables; returns the primary's."""
        self.auxiliary.get_cuda_graph_page_table()
        return self.primary.get_cuda_graph_page_table()

    def get_cuda_graph_page_table_state(self) -> tuple[int, tuple[int, ...], torch.dtype, str, bool]:
        return self.primary.get_cuda_graph_page_table_state()

    # tensors belong to one pool

    def get_kv_tensors(self, layer_idx: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        raise RuntimeError("primary-only method get_kv_tensors: use .primary or .auxiliary")

    def get_page_pointers(self) -> tuple[PagePointers, PagePointers | None]:
        raise RuntimeError("primary-only method get_page_pointers: use .primary or .auxiliary")

    # checks

    def assert_mirrored_state(self) -> None:
        """Pages of each sequence, row order and tables are equal. AssertionError naming what differs."""
        ours, theirs = self.primary._sequences, self.auxiliary._sequences
        for sid in sorted(ours.keys() | theirs.keys()):
            if ours.get(sid) != theirs.get(sid):
                raise AssertionError(
                    f"{self._names}: sequence {sid} holds pages {ours.get(sid)} and {theirs.get(sid)}"
                )
        if self.primary.slot_to_seq_id != self.auxiliary.slot_to_seq_id:
            raise AssertionError(
                f"{self._names}: rows are {self.primary.slot_to_seq_id} and {self.auxiliary.slot_to_seq_id}"
            )
        if not torch.equal(self.primary.gpu_table.cpu(), self.auxiliary.gpu_table.cpu()):
            raise AssertionError(f"{self._names}: page tables differ")

    def check_invariants(self) -> None:
        """The invariants of both pools, and that they are mirrored."""
        self.primary.check_invariants()
        self.auxiliary.check_invariants()
        self.assert_mirrored_state()
