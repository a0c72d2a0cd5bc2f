"""Every page is in exactly one place: free, or owned once. On the pools of the GPU and on those of the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from shadow.invariants.invariant import PlainInvariant
from shadow.observation import Point, Violation
from shadow.observe.hooks import tree_class
from shadow.observe.pools import free_pages, host_free_pages, host_pages, shared_with_other_ranks
from shadow.observe.probe import Subject

_POINTS = frozenset((Point.PREFILL, Point.DECODE, Point.BOUNDARY, Point.END))


@dataclass(frozen=True)
class Ownership:
    """One pool: its free list, None where it has none to look at, and the pages of each sequence."""

    pool: str
    num_pages: int
    free: list[int] | None
    owned: dict[str, list[int]]


def ownerships(subject: Subject) -> Iterator[Ownership]:
    label = subject.names.of_index
    for name, pool in subject.pools():
        owned = {label(index): list(map(int, pages)) for index, pages in pool._sequences.items()}
        yield Ownership(name, pool.config.num_pages, free_pages(pool), owned)
    for name, view in subject.hosts():
        if not shared_with_other_ranks(view):  # of those, the other ranks' pages are not seen here
            owned = {label(index): list(map(int, pages)) for index, pages in host_pages(view).items()}
            yield Ownership(name, view.config.num_pages, host_free_pages(view), owned)


class _WithFreeList(PlainInvariant):
    points = _POINTS

    def missing(self, subject: Subject) -> str | None:
        return None if tree_class("kv", "GPUPagedKVCacheManager") else "the pools keep no list to look at"


class NoAlias(PlainInvariant):
    """A page belongs to one sequence at most, and stands in its list once."""

    name = "no-alias"
    points = _POINTS

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        looked_at, found = 0, []
        for place in ownerships(subject):
            owners: dict[int, str] = {}
            for label, pages in place.owned.items():
                looked_at += len(pages)
                for page in pages:
                    if page in owners:
                        text = f"page {page} of pool {place.pool} is owned by {owners[page]} and by {label}"
                        found.append(Violation(self.name, text, label))
                    owners[page] = label
        return looked_at, found


class PagesExist(_WithFreeList):
    """Every page that is free or owned is a page of the pool, and not the scratch page."""

    name = "pages-exist"

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        looked_at, found = 0, []
        for place in ownerships(subject):
            holders: list[tuple[str | None, list[int]]] = [*place.owned.items(), (None, place.free or [])]
            for label, pages in holders:
                looked_at += len(pages)
                for page in pages:
                    if not 0 <= page < place.num_pages:
                        holder = "the free list" if label is None else label
                        text = f"{holder} names page {page}; pool {place.pool} has {place.num_pages}"
                        found.append(Violation(self.name, text, label))
        return looked_at, found


class Conservation(_WithFreeList):
    """No page is lost: each is in the free list or owned by a sequence."""

    name = "conservation"

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        looked_at, found = 0, []
        for place in ownerships(subject):
            if place.free is None:
                continue
            looked_at += place.num_pages
            placed = {*place.free, *(page for pages in place.owned.values() for page in pages)}
            lost = [page for page in range(place.num_pages) if page not in placed]
            if lost:
                text = f"pages {_some(lost)} of pool {place.pool} are neither free nor owned"
                found.append(Violation(self.name, text))
        return looked_at, found


class NoDoubleFree(_WithFreeList):
    """A page stands in the free list once."""

    name = "double-free"

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        looked_at, found = 0, []
        for place in ownerships(subject):
            free = place.free or []
            looked_at += len(free)
            if len(set(free)) != len(free):
                twice = [page for page, times in Counter(free).items() if times > 1]
                text = f"pages {_some(twice)} are in the free list of pool {place.pool} more than once"
                found.append(Violation(self.name, text))
        return looked_at, found


class NoUseAfterFree(_WithFreeList):
    """What a sequence owns is not free."""

    name = "use-after-free"

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        looked_at, found = 0, []
        for place in ownerships(subject):
            free = set(place.free or [])
            for label, pages in place.owned.items():
                looked_at += len(pages)
                both = [page for page in pages if page in free]
                if both:
                    text = f"pages {_some(both)} of pool {place.pool} are free and owned by {label}"
                    found.append(Violation(self.name, text, label))
        return looked_at, found


class Mirrored(PlainInvariant):
    """The pools of a pair hold the same pages for the same sequences, their tables the same rows."""

    name = "mirrored-pools"
    points = _POINTS

    def missing(self, subject: Subject) -> str | None:
        shape = getattr(getattr(subject.worker, "model", None), "aux_pool_shape", None)
        return None if shape is not None and shape() is not None else "the model has one pool"

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        pools = [pool for _, pool in subject.pools()]
        if len(pools) != 2:
            return 0, []
        ours, theirs = (pool._sequences for pool in pools)
        found = []
        for index in sorted({*ours, *theirs}):
            if ours.get(index) != theirs.get(index):
                label = subject.names.of_index(index)
                text = f"{label} holds pages {ours.get(index)} and, in the other pool, {theirs.get(index)}"
                found.append(Violation(self.name, text, label))
        if pools[0].slot_to_seq_id != pools[1].slot_to_seq_id:
            text = f"rows are {pools[0].slot_to_seq_id} and, in the other pool, {pools[1].slot_to_seq_id}"
            found.append(Violation(self.name, text))
        return len(ours) + 1, found


def _some(pages: list[int]) -> str:
    shown = ", ".join(map(str, pages[:6]))
    return shown if len(pages) <= 6 else f"{shown} and {len(pages) - 6} more"
