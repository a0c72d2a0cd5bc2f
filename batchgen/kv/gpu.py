"""The paged KV pool that attention reads and writes: one set of tensors, one ledger, one page table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from batchgen.kv.ledger import PageLedger
from batchgen.kv.page_table import PageTable
from batchgen.kv.pool import KVPoolConfig, KVStats, PagePointers


@dataclass
class _Pool:
    k_cache: torch.Tensor
    v_cache: torch.Tensor | None
    ledger: PageLedger
    table: PageTable


class GPUPagedKVCacheManager:
    """A pool of KV pages on `device` and the sequences that own them.

    `k_cache`/`v_cache` are [layers, num_pages + 1, page_size, kv_heads, head_dim]. The last page is the
    scratch page: never in the free list, it takes the reads and writes of padded rows. Page ids come from a
    LIFO free list. Operations on several sequences are atomic. Before `initialize()` and after `destroy()`
    everything but those two, `get_stats` and `is_initialized` raises RuntimeError.
    """

    def __init__(self, config: KVPoolConfig, device: torch.device) -> None:
        self.config = config
        self.device = torch.device(device)
        self._pool: _Pool | None = None
        self._version = 0

    # life cycle

    @property
    def is_initialized(self) -> bool:
        return self._pool is not None

    def initialize(self) -> None:
        """Make a fresh, zeroed pool with all pages free; does nothing when there is one already."""
        if self._pool is not None:
            return
        c = self.config
        shape = (c.num_layers, c.num_pages + 1, c.page_size, c.num_kv_heads, c.head_dim)
        # A tensor made in inference mode could not be written to outside of it.
        with torch.inference_mode(False):
            self._pool = _Pool(
                k_cache=torch.zeros(shape, dtype=c.dtype, device=self.device),
                v_cache=torch.zeros(shape, dtype=c.dtype, device=self.device) if c.has_value else None,
                ledger=PageLedger(c.name, c.num_pages),
                table=PageTable(c, self.device, self._version + 1),
            )

    def destroy(self) -> None:
        """Drop tensors, sequences and tables; does nothing when there are none."""
        if self._pool is not None:
            self._version = self._pool.table.version
            self._pool = None

    def _live(self) -> _Pool:
        if self._pool is None:
            raise RuntimeError(
                f"KV pool {self.config.name!r} on {self.device} is not initialised; call initialize()"
            )
        return self._pool

    # what the worker looks at

    @property
    def k_cache(self) -> torch.Tensor:
        return self._live().k_cache

    @property
    def v_cache(self) -> torch.Tensor | None:
        return self._live().v_cache

    @property
    def gpu_table(self) -> torch.Tensor:
        """int32 [max_slots, num_pages + 1] on the device, -1 padded; row i belongs to `slot_to_seq_id[i]`."""
        return self._live().table.device_table

    @property
    def slot_to_seq_id(self) -> list[int]:
        return [] if self._pool is None else self._pool.table.slot_to_seq_id

    @property
    def rebuild_version(self) -> int:
        """Grows with every change of the page table, over `destroy()` and `initialize()` as well."""
        return self._version if self._pool is None else self._pool.table.version

    @property
    def ledger(self) -> PageLedger:
        """Who owns which page, to be looked at. RuntimeError when the pool is not initialised."""
        return self._live().ledger

    @property
    def _sequences(self) -> dict[int, list[int]]:
        return {} if self._pool is None else self._pool.ledger.sequences

    @property
    def scratch_page_id(self) -> int:
        return self.config.num_pages

    def sequence_ids(self) -> list[int]:
        return list(self._live().ledger.sequences)

    def has_sequence(self, sequence_id: int) -> bool:
        return sequence_id in self._live().ledger.sequences

    def num_pages_of(self, sequence_id: int) -> int:
        """KeyError when the sequence is not allocated."""
        ledger = self._live().ledger
        ledger.check_known([sequence_id])
        return len(ledger.sequences[sequence_id])

    def get_stats(self) -> KVStats:
        if self._pool is None:
            return KVStats(0, 0, 0)
        total, free = self.config.num_pages, len(self._pool.ledger.free_pages)
        return KVStats(free, total - free, total)

    # pages

    def check_allocate(self, sequence_ids: Sequence[int], num_tokens: Sequence[int]) -> None:
        """Raise what `allocate_pages_for_sequences` would raise, without changing anything."""
        self._live().ledger.check_take(sequence_ids, [self.config.pages_for(n) for n in num_tokens], new=True)

    def allocate_pages_for_sequences(
        self, sequence_ids: Sequence[int], num_tokens: Sequence[int]
    ) -> dict[int, list[int]]:
        """Give each new sequence the pages for its tokens.

        Atomic: KVExhausted, or ValueError for a sequence that is already allocated, leave nothing changed.
        """
        pages = [self.config.pages_for(n) for n in num_tokens]
        return self._live().ledger.take(sequence_ids, pages, new=True)

    def check_grow(self, sequence_ids: Sequence[int], num_pages: Sequence[int]) -> None:
        """Raise what `grow_pages_for_sequences` would raise, without changing anything."""
        self._live().ledger.check_take(sequence_ids, num_pages, new=False)

    def grow_pages_for_sequences(
        self, sequence_ids: Sequence[int], num_pages: Sequence[int]
    ) -> dict[int, list[int]]:
        """Append that many pages to each sequence; returns the new ones. Atomic: KVExhausted, KeyError."""
        return self._live().ledger.take(sequence_ids, num_pages, new=False)

    def pages_to_extend(self, sequence_id: int, total_tokens: int) -> int:
        """Pages missing to cover `total_tokens`. KeyError when the sequence is not allocated."""
        return max(0, self.config.pages_for(total_tokens) - self.num_pages_of(sequence_id))

    def extend_pages_for_sequence(self, sequence_id: int, total_tokens: int) -> list[int]:
        """Make the sequence cover `total_tokens`; returns the NEW pages, if any. KVExhausted, KeyError."""
        missing = self.pages_to_extend(sequence_id, total_tokens)
        return self._live().ledger.take([sequence_id], [missing], new=False)[sequence_id]

    def undo_take(self, taken: dict[int, list[int]], *, new: bool) -> None:
        """Exact inverse of the last allocate (`new=True`) or grow/extend, which returned `taken`."""
        self._live().ledger.undo_take(taken, new=new)

    def check_free(self, sequence_ids: Sequence[int]) -> None:
        """Raise what `free_pages_for_sequences` would raise, without changing anything."""
        self._live().ledger.check_release(sequence_ids)

    def free_pages_for_sequences(self, sequence_ids: Sequence[int]) -> None:
        """Push the pages back onto the free list; page table rows that named them become empty.

        KeyError on an unknown id or one named twice, before anything is freed.
        """
        pool = self._live()
        pool.ledger.release(sequence_ids)
        pool.table.blank(sequence_ids)

    def pages_of(self, sequence_id: int) -> list[int]:
        """Its pages, in order. KeyError when the sequence is not allocated."""
        ledger = self._live().ledger
        ledger.check_known([sequence_id])
        return list(ledger.sequences[sequence_id])

    def check_regroup(self, old: Sequence[int], new: Mapping[int, Sequence[int]]) -> None:
        """Raise what `regroup_pages` would raise, without changing anything."""
        self._live().ledger.check_regroup(old, new)

    def regroup_pages(self, old: Sequence[int], new: Mapping[int, Sequence[int]]) -> None:
        """Hand the pages of old sequences to new ones, KV and all; page table rows of the old ones become empty.

        KeyError, ValueError (`PageLedger.regroup`), before anything changes.
        """
        pool = self._live()
        pool.ledger.regroup(old, new)
        pool.table.blank(old)

    # page table

    def rebuild_page_table(self, sequence_ids: Sequence[int]) -> None:
        """Row i becomes `sequence_ids[i]`. ValueError when empty or too long, KeyError when not allocated."""
        pool = self._live()
        pool.ledger.check_known(sequence_ids)
        pool.table.rebuild(sequence_ids, pool.ledger.sequences)

    def clear_page_table(self) -> None:
        self._live().table.clear()

    def save_page_table(self) -> tuple[list[int], torch.Tensor]:
        """What `restore_page_table` needs to bring the current rows back."""
        table = self._live().table
        return table.slot_to_seq_id, table.host

    def restore_page_table(self, saved: tuple[list[int], torch.Tensor]) -> None:
        self._live().table.write(*saved)

    def page_table_for_rows(self, num_rows: int) -> torch.Tensor:
        """View int32 [num_rows, widest live row (at least 1)] of `gpu_table`."""
        return self._live().table.rows(num_rows)

    def export_active_sequence_page_counts(self) -> torch.Tensor:
        """int64 CPU [slots]: pages that each row of the current table names."""
        return (self._live().table.host >= 0).sum(dim=1)

    def ensure_cuda_graph_page_table(self) -> torch.Tensor:
        """int32 [graph_max_slots, graph_max_pages]; the same tensor for as long as the pool lives."""
        return self._live().table.ensure_graph_table()

    def get_cuda_graph_page_table(self) -> torch.Tensor:
        """The graph page table, filled with the live rows. ValueError when they do not fit."""
        return self._live().table.fill_graph_table()

    def get_cuda_graph_page_table_state(self) -> tuple[int, tuple[int, ...], torch.dtype, str, bool]:
        """(data_ptr, shape, dtype, device, whether it shows the current `rebuild_version`)."""
        table = self._live().table
        graph = table.ensure_graph_table()
        return graph.data_ptr(), tuple(graph.shape), graph.dtype, str(graph.device), table.graph_is_valid

    # tensors

    def get_kv_tensors(self, layer_idx: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Views [num_pages + 1, page_size, heads, dim] of one layer."""
        pool = self._live()
        return pool.k_cache[layer_idx], None if pool.v_cache is None else pool.v_cache[layer_idx]

    def get_page_pointers(self) -> tuple[PagePointers, PagePointers | None]:
        """(keys, values): the pages of the current table as load targets."""
        pool = self._live()
        page_ids = pool.table.host
        value = None if pool.v_cache is None else PagePointers(pool.v_cache, page_ids)
        return PagePointers(pool.k_cache, page_ids), value

    def check_invariants(self) -> None:
        """Conservation, no alias, tables agree with the lists. AssertionError naming page and sequence."""
        pool = self._live()
        pool.ledger.check_invariants()
        pool.table.check_invariants(pool.ledger.sequences)
