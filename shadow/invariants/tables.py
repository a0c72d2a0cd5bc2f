"""Page tables: what a row shows is what its sequence owns, enough for its length, and nothing beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from shadow.invariants.invariant import PlainInvariant
from shadow.observation import Point, Severity, Violation
from shadow.observe.probe import Subject

_DECODE = frozenset((Point.DECODE,))


class LengthIdentity(PlainInvariant):
    """(pages - 1) * page_size + last_page_len == kv_len, on the owned pages that the row shows, in their order."""

    name = "length-identity"
    points = _DECODE

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        looked_at, found = 0, []
        kv_len = subject.attended()
        for name, pool in subject.pools():
            size, table = pool.config.page_size, subject.table(pool)
            order = pool.slot_to_seq_id[: len(table)]
            width = max(0, -(-max(kv_len.values(), default=0) // size))
            rows = table[: len(order), :width].tolist()
            for row, (index, label, row_shown) in enumerate(
                zip(order, subject.order(pool), rows, strict=False)
            ):
                length = kv_len.get(label)
                if length is None:
                    continue
                looked_at += 1
                owned = pool._sequences.get(index, [])
                pages = -(-length // size)
                last_page_len = length - (pages - 1) * size
                shown = row_shown[:pages]
                if not 1 <= last_page_len <= size or len(owned) < pages:
                    text = f"{name}: {len(owned)} pages of {size} for {length} tokens"
                    found.append(Violation(self.name, text, label))
                elif shown != list(owned[:pages]):
                    text = f"{name}: row {row} shows {shown}, the sequence owns {list(owned[:pages])}"
                    found.append(Violation(self.name, text, label))
        return looked_at, found


class RowOrder(PlainInvariant):
    """Row i of the table, of the bound batch and of the batch whose tokens are selected is one sequence."""

    name = "row-order"
    points = _DECODE

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        rows = [entry.global_idx for entry in subject.entries]
        found = []
        orders = [("the attention wrapper", [int(i) for i in subject.wrapper.cur_batch or ()])]
        orders += [(f"the table of pool {name}", list(pool.slot_to_seq_id)) for name, pool in subject.pools()]
        for where, order in orders:
            if order != rows:
                at = next(
                    (i for i, pair in enumerate(zip(order, rows, strict=False)) if pair[0] != pair[1]), 0
                )
                label = subject.names.of_index(rows[at]) if at < len(rows) else None
                text = f"{where} has rows {order}, the batch is {rows}"
                found.append(Violation(self.name, text, label))
        return len(orders), found


class TrailingColumns(PlainInvariant):
    """Table cells that belong to no owned page are -1: beyond a sequence's list, and beyond the batch's rows.

    The last column is never a page: it is the guard word of the buffer, checked for all rows there are.
    """

    name = "trailing-columns"
    points = frozenset((Point.DECODE, Point.BOUNDARY))

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        looked_at, found = 0, []
        for name, pool in subject.pools():
            table, order = subject.table(pool), list(pool.slot_to_seq_id)
            looked_at += table.size
            held = [len(pool._sequences.get(index, ())) for index in order]
            made_of = subject.order(pool), held, subject.table_bytes(pool)

            def trailing(
                name: str = name, table: np.ndarray = table, made_of: Any = made_of
            ) -> list[Violation]:
                return list(self._trailing(name, table, made_of[0], made_of[1]))

            found += subject.again(f"{name}.trailing", made_of, trailing)
        return looked_at, found

    def _trailing(
        self, name: str, table: np.ndarray, order: list[str], held: list[int]
    ) -> Iterator[Violation]:
        beyond = np.argwhere(table[len(order) :] != -1)
        if len(beyond):
            row, column = beyond[0].tolist()
            page = int(table[len(order) + row, column])
            text = f"{name}: row {len(order) + row} is nobody's and names page {page}"
            yield Violation(self.name, text, severity=Severity.LATENT)
        rows = table[: len(order)]
        owned = np.array(held[: len(rows)], dtype=np.int64)
        foreign = (rows != -1) & (np.arange(rows.shape[1]) >= owned[:, None])
        for row in np.flatnonzero(foreign.any(axis=1)).tolist():
            column = int(foreign[row].argmax())
            page = int(table[row, column])
            text = f"{name}: row {row} names page {page} in column {column}, {held[row]} are owned"
            yield Violation(self.name, text, order[row], severity=Severity.LATENT)
