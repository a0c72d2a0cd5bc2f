"""The page table that attention reads, and its twin with a stable address for captured graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from batchgen.kv.pool import KVPoolConfig, padded_page_table


def check_rows(label: str, max_slots: int, sequence_ids: Sequence[int]) -> None:
    """ValueError, naming the pool by `label`, for no rows, or those that a page table of `max_slots` cannot have."""
    if not len(sequence_ids):
        raise ValueError(f"{label}: no sequence to rebuild the page table for; clear it")
    if len(sequence_ids) > max_slots:
        raise ValueError(
            f"{label}: {len(sequence_ids)} sequences do not fit into a page table of "
            f"{max_slots} rows; raise max_slots or decode fewer rows"
        )
    if len(set(sequence_ids)) != len(sequence_ids):
        raise ValueError(f"{label}: a sequence is named twice in page table rows {list(sequence_ids)}")


class PageTable:
    """int32 `device_table` [max_slots, num_pages + 1]: row i lists the pages of `slot_to_seq_id[i]`.

    Everything that is not a page of a live row is -1; the last column always is. `host` is the live part
    [slots, width] on the CPU; it is replaced and never written in place, so it may be handed out. `version`
    grows with every change of the content. The graph table is a second int32 tensor
    [graph_max_slots, graph_max_pages], filled with -1, whose address never changes.
    """

    def __init__(self, config: KVPoolConfig, device: torch.device, version: int) -> None:
        self.config = config
        self.label = f"KV pool {config.name!r}"
        self.device = device
        self.version = version
        self.slot_to_seq_id: list[int] = []
        self.host = padded_page_table([])
        self.device_table = torch.full(
            (config.max_slots, config.num_pages + 1), -1, dtype=torch.int32, device=device
        )
        self._graph_table: torch.Tensor | None = None
        self._graph_version = -1

    def rebuild(self, sequence_ids: Sequence[int], sequences: Mapping[int, Sequence[int]]) -> None:
        """Make row i name the pages of `sequence_ids[i]`.

        ValueError for no rows, more than `max_slots`, or for a sequence named twice (two rows would write the
        same pages).
        """
        check_rows(self.label, self.config.max_slots, sequence_ids)
        self.write(list(sequence_ids), padded_page_table([sequences[sid] for sid in sequence_ids]))

    def blank(self, sequence_ids: Sequence[int]) -> None:
        """Fill the rows of these sequences with -1, so that no row names a page that is no longer its own."""
        gone = set(sequence_ids)
        rows = [row for row, sid in enumerate(self.slot_to_seq_id) if sid in gone]
        if rows:
            host = self.host.clone()
            host[rows] = -1
            self.write(self.slot_to_seq_id, host)

    def clear(self) -> None:
        self.write([], padded_page_table([]))

    def write(self, slots: list[int], host: torch.Tensor) -> None:
        """Make the table say `host` int32 CPU [len(slots), width]; every row and column beyond becomes -1."""
        self.device_table[: self.host.shape[0], : self.host.shape[1]] = -1
        self.device_table[: host.shape[0], : host.shape[1]] = host.to(self.device)
        self.slot_to_seq_id, self.host = slots, host
        self.version += 1

    def rows(self, num_rows: int) -> torch.Tensor:
        """View int32 [num_rows, widest live row (at least 1)] of the device table."""
        if not 0 <= num_rows <= self.config.max_slots:
            raise ValueError(
                f"{self.label}: {num_rows} page table rows asked, there are {self.config.max_slots}"
            )
        return self.device_table[:num_rows, : max(1, self.host.shape[1])]

    def ensure_graph_table(self) -> torch.Tensor:
        if self._graph_table is None:
            shape = (self.config.graph_max_slots, self.config.graph_max_pages)
            with torch.inference_mode(False):
                self._graph_table = torch.full(shape, -1, dtype=torch.int32, device=self.device)
        return self._graph_table

    def fill_graph_table(self) -> torch.Tensor:
        """Copy the live rows, -1 elsewhere. ValueError when the live rows or columns exceed the table."""
        table = self.ensure_graph_table()
        slots, width = self.host.shape
        if slots > table.shape[0] or width > table.shape[1]:
            raise ValueError(
                f"{self.label}: the live page table of {slots} rows x {width} pages exceeds the "
                f"graph page table of {table.shape[0]} x {table.shape[1]}; decode eagerly or enlarge it"
            )
        table.fill_(-1)
        table[:slots, :width] = self.device_table[:slots, :width]
        self._graph_version = self.version
        return table

    @property
    def graph_is_valid(self) -> bool:
        return self._graph_version == self.version

    def check_invariants(self, sequences: Mapping[int, Sequence[int]]) -> None:
        """Rows name nothing but the leading pages of their own sequence; all padding is -1.

        A sequence may own more pages than its row shows (it grew after the last rebuild), and a freed
        sequence's row is empty until the next rebuild. AssertionError naming row, column, page and sequence.
        """
        shown = (self.host != -1).cumprod(dim=1).sum(dim=1).tolist()
        rows = zip(self.slot_to_seq_id, shown, strict=True)
        owned = padded_page_table([list(sequences.get(sid, ()))[:width] for sid, width in rows])
        self._check_equal("host copy of the page table", self.host, owned)
        self._check_equal("page table", self.device_table.cpu(), owned)
        if self._graph_table is not None and self.graph_is_valid:
            self._check_equal("graph page table", self._graph_table.cpu(), self.host)

    def _check_equal(self, what: str, table: torch.Tensor, live: torch.Tensor) -> None:
        expected = torch.full_like(table, -1)
        expected[: live.shape[0], : live.shape[1]] = live
        for row, col in (expected != table).nonzero()[:1].tolist():
            sequence = (
                f"sequence {self.slot_to_seq_id[row]}" if row < len(self.slot_to_seq_id) else "no sequence"
            )
            raise AssertionError(
                f"{self.label}: {what} row {row} ({sequence}) names page {int(table[row, col])} "
                f"in column {col}, expected {int(expected[row, col])}"
            )
