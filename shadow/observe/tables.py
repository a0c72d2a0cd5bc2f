"""Who owns which page, how much of it is live, and how many pages are free."""

from __future__ import annotations

from typing import Any

from shadow.observation import Kind, Pages, Point, Rows
from shadow.observe.probe import PlainProbe, Subject, Values, key


def live_rows(subject: Subject, pool: Any, kv_len: dict[str, int]) -> dict[str, list[int]]:
    """By label of the rows that attention is bound to, the pages that hold its tokens: the live prefix, in order."""
    table, size = subject.table(pool), pool.config.page_size
    order = [subject.names.of_index(index) for index in pool.slot_to_seq_id]
    return {
        label: table[row, : -(-kv_len[label] // size)].tolist()
        for row, label in enumerate(order[: len(table)])
        if label in kv_len
    }


class PageTables(PlainProbe):
    kind = Kind.PAGE_TABLE
    points = frozenset((Point.DECODE, Point.BOUNDARY, Point.END))
    structural = True

    def values(self, subject: Subject, point: Point) -> Values:
        if point is not Point.DECODE:
            return _owned(subject)
        kv_len = subject.attended()
        lengths = subject.wrapper.cache_seqlens
        values: Values = {
            key(Kind.PAGE_TABLE, None, "rows"): Rows(tuple(kv_len)),
            key(Kind.PAGE_TABLE, None, "num_lengths"): 0 if lengths is None else len(lengths),
        }
        for label, length in kv_len.items():
            values[key(Kind.PAGE_TABLE, label, "kv_len")] = length
        # In order of allocation: a sequence that takes one page too many moves the pages of all after it.
        values.update(_owned(subject))
        for name, pool in subject.pools():
            order = tuple(subject.names.of_index(index) for index in pool.slot_to_seq_id)
            values[key(Kind.PAGE_TABLE, None, f"{name}.slot_order")] = Rows(order)
            for label, pages in live_rows(subject, pool, kv_len).items():
                values[key(Kind.PAGE_TABLE, label, f"{name}.live_pages")] = Pages(name, tuple(pages))
        return values


def _owned(subject: Subject) -> Values:
    return {
        key(Kind.PAGE_TABLE, subject.names.of_index(index), f"{name}.owned_pages"): Pages(
            name, tuple(map(int, pages))
        )
        for name, pool in subject.pools()
        for index, pages in pool._sequences.items()
    }


class PoolCounts(PlainProbe):
    kind = Kind.PAGE_TABLE
    points = frozenset((Point.PREFILL, Point.DECODE, Point.BOUNDARY, Point.END))
    structural = True

    def values(self, subject: Subject, point: Point) -> Values:
        pools = dict(subject.pools())
        host = getattr(subject.worker, "host_paged_kv_worker_view", None)
        if host is not None:
            pools["host"] = host
        return {
            key(Kind.PAGE_TABLE, None, f"{name}.free_pages"): int(pool.get_stats().num_free_pages)
            for name, pool in pools.items()
        }
