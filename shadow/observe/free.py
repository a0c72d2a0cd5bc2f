"""Free pages in the order in which they will be given, and what is left behind the live part of the tables."""

from __future__ import annotations

import numpy as np

from shadow.observation import Kind, Pages, Point
from shadow.observe.hooks import tree_class
from shadow.observe.pools import free_pages, host_free_pages, shared_with_other_ranks
from shadow.observe.probe import PlainProbe, Subject, Values, key


class FreeLists(PlainProbe):
    """A sequence that takes a page too many, or gives one back twice, shows here before anybody reads a page."""

    kind = Kind.FREE_LIST
    points = frozenset((Point.PREFILL, Point.DECODE, Point.BOUNDARY, Point.END))
    structural = True

    def missing(self, subject: Subject) -> str | None:
        return None if tree_class("kv", "GPUPagedKVCacheManager") else "the pools keep no list to look at"

    def values(self, subject: Subject, point: Point) -> Values:
        lists = {name: free_pages(pool) for name, pool in subject.pools()}
        for name, view in subject.hosts():
            if not shared_with_other_ranks(view):
                lists[name] = host_free_pages(view)
        return {
            key(Kind.FREE_LIST, None, f"{name}.free"): Pages(name, tuple(pages), owned=False)
            for name, pages in lists.items()
            if pages is not None
        }


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
            table = subject.table(pool)
            order = [subject.names.of_index(index) for index in pool.slot_to_seq_id]
            beyond = int(np.count_nonzero(table[len(order) :] != -1))
            values[key(Kind.HYGIENE, None, f"{name}.rows_beyond")] = beyond
            for row, label in enumerate(order[: len(table)]):
                live = -(-kv_len.get(label, 0) // pool.config.page_size)
                tail = table[row, live:]
                kept = tuple(tail[tail != -1].tolist())
                values[key(Kind.HYGIENE, label, f"{name}.tail")] = Pages(name, kept, owned=False)
        return values
