"""Free pages in the order in which they will be given, and what is left behind the live part of the tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from shadow.observation import Kind, Point
from shadow.observe.hooks import tree_class
from shadow.observe.pools import free_pages, host_free_pages, shared_with_other_ranks
from shadow.observe.probe import PlainProbe, Subject, Values, key, keys


def free_lists(subject: Subject) -> dict[str, tuple[int, ...] | None]:
    """By pool, those of the host too where no other rank takes pages: theirs are not seen here."""

    def read() -> dict[str, tuple[int, ...] | None]:
        lists = {name: free_pages(pool) for name, pool in subject.pools()}
        for name, view in subject.hosts():
            if not shared_with_other_ranks(view):
                lists[name] = host_free_pages(view)
        return {name: None if pages is None else tuple(pages) for name, pages in lists.items()}

    found: dict[str, tuple[int, ...] | None] = subject.once("free lists", read)
    return found


class FreeLists(PlainProbe):
    """A sequence that takes a page too many, or gives one back twice, shows here before anybody reads a page."""

    kind = Kind.FREE_LIST
    points = frozenset((Point.PREFILL, Point.DECODE, Point.BOUNDARY, Point.END))
    structural = True

    def missing(self, subject: Subject) -> str | None:
        return None if tree_class("kv", "GPUPagedKVCacheManager") else "the pools keep no list to look at"

    def values(self, subject: Subject, point: Point) -> Values:
        values: Values = {}
        for name, pages in free_lists(subject).items():
            if pages is not None:
                place = key(Kind.FREE_LIST, None, f"{name}.free")
                values[place] = subject.pages(place, name, pages, owned=False)
        return values


class TableTails(PlainProbe):
    """Columns behind the live prefix, and rows beyond the batch: what a kernel that trusts kv_len never reads."""

    kind = Kind.HYGIENE
    points = frozenset((Point.DECODE,))
    structural = True

    def missing(self, subject: Subject) -> str | None:
        return None if tree_class("kv", "GPUPagedKVCacheManager") else "the tables have no known layout"

    def values(self, subject: Subject, point: Point) -> Values:
        kv_len = subject.attended()
        values: Values = {}
        for name, pool in subject.pools():
            order, size = subject.order(pool), pool.config.page_size
            live = [-(-kv_len.get(label, 0) // size) for label in order]
            made_of = order, live, subject.table_bytes(pool)

            def tails(name: str = name, pool: Any = pool, live: list[int] = live) -> Values:
                return _tails(subject, name, pool, live)

            values.update(subject.again(f"{name}.tails", made_of, tails))
        return values


def _tails(subject: Subject, name: str, pool: Any, live: list[int]) -> Values:
    table = subject.table(pool)
    order = subject.order(pool)
    values: Values = {}
    beyond = int(np.count_nonzero(table[len(order) :] != -1))
    values[key(Kind.HYGIENE, None, f"{name}.rows_beyond")] = beyond
    rows = table[: len(order)]
    tail = (rows != -1) & (np.arange(rows.shape[1]) >= np.array(live[: len(rows)], np.int64)[:, None])
    kept, ends = rows[tail].tolist(), np.cumsum(tail.sum(axis=1)).tolist()
    places = keys(Kind.HYGIENE, tuple(order[: len(rows)]), (f"{name}.tail",))
    for place, start, end in zip(places, [0, *ends], ends, strict=False):
        values[place] = subject.pages(place, name, tuple(kept[start:end]), owned=False)
    return values
