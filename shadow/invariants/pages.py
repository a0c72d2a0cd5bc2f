"""Every page is in exactly one place: free, or owned once. On the pools of the GPU and on those of the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from shadow.invariants.invariant import PlainInvariant
from shadow.observation import Point, Violation
from shadow.observe.free import free_lists
from shadow.observe.hooks import tree_class
from shadow.observe.pools import host_pages, shared_with_other_ranks
from shadow.observe.probe import Subject

_POINTS = frozenset((Point.PREFILL, Point.DECODE, Point.BOUNDARY, Point.END))


@dataclass(frozen=True)
class Ownership:
    """One pool: how often each page is in the free list and in the lists of sequences, int64 [num_pages].

    `beyond`: (holder, page) of what is no page of the pool.
    """

    pool: str
    free: np.ndarray
    owned: np.ndarray
    pages: Mapping[str, Sequence[int]]
    beyond: list[tuple[str | None, int]]

    def owners(self, page: int) -> list[str]:
        return [label for label, pages in self.pages.items() for held in pages if held == page]


def _ownership(name: str, size: int, free: tuple[int, ...], pages: dict[str, list[int]]) -> Ownership:
    owned = np.array(list(chain.from_iterable(pages.values())), dtype=np.int64)
    listed = np.array(free, dtype=np.int64)
    beyond: list[tuple[str | None, int]] = []
    for numbers in (listed, owned):
        if len(numbers) and not (numbers.min() >= 0 and numbers.max() < size):
            holders: list[tuple[str | None, Sequence[int]]] = [*pages.items(), (None, free)]
            beyond = [(label, page) for label, held in holders for page in held if not 0 <= page < size]
    counts = [np.bincount(n[(n >= 0) & (n < size)], minlength=size) for n in (listed, owned)]
    return Ownership(name, counts[0], counts[1], pages, beyond)


def ownerships(subject: Subject) -> list[Ownership]:
    """Of the GPU pools, and of the host pools where no other rank takes pages: theirs are not seen here."""
    found: list[Ownership] = subject.once("ownerships", lambda: list(_ownerships(subject)))
    return found


def _ownerships(subject: Subject) -> Iterator[Ownership]:
    free = free_lists(subject)
    places = [(name, pool, pool._sequences) for name, pool in subject.pools()]
    places += [
        (n, view, host_pages(view)) for n, view in subject.hosts() if not shared_with_other_ranks(view)
    ]
    for name, pool, owners in places:
        pages = dict(zip(subject.names.of_indices(owners), map(list, owners.values()), strict=True))
        size, listed = pool.config.num_pages, free[name] or ()

        def make(name: str = name, size: int = size, listed: Any = listed, pages: Any = pages) -> Ownership:
            return _ownership(name, size, listed, pages)

        yield subject.again(f"{name}.ownership", (size, listed, pages), make)


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
            looked_at += int(place.owned.sum())
            for page in np.flatnonzero(place.owned > 1).tolist():
                first, *others = place.owners(page)
                text = f"page {page} of pool {place.pool} is owned by {first} and by {', '.join(others)}"
                found.append(Violation(self.name, text, others[0]))
        return looked_at, found


class PagesExist(_WithFreeList):
    """Every page that is free or owned is a page of the pool, and not the scratch page."""

    name = "pages-exist"

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        looked_at, found = 0, []
        for place in ownerships(subject):
            looked_at += int(place.owned.sum() + place.free.sum())
            for label, page in place.beyond:
                holder = "the free list" if label is None else label
                text = f"{holder} names page {page}; pool {place.pool} has {len(place.free)}"
                found.append(Violation(self.name, text, label))
        return looked_at, found


class Conservation(_WithFreeList):
    """No page is lost: each is in the free list or owned by a sequence."""

    name = "conservation"

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        looked_at, found = 0, []
        for place in ownerships(subject):
            looked_at += len(place.free)
            lost = np.flatnonzero(place.free + place.owned == 0)
            if len(lost):
                text = f"pages {_some(lost)} of pool {place.pool} are neither free nor owned"
                found.append(Violation(self.name, text))
        return looked_at, found


class NoDoubleFree(_WithFreeList):
    """A page stands in the free list once."""

    name = "double-free"

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        looked_at, found = 0, []
        for place in ownerships(subject):
            looked_at += int(place.free.sum())
            twice = np.flatnonzero(place.free > 1)
            if len(twice):
                text = f"pages {_some(twice)} are in the free list of pool {place.pool} more than once"
                found.append(Violation(self.name, text))
        return looked_at, found


class NoUseAfterFree(_WithFreeList):
    """What a sequence owns is not free."""

    name = "use-after-free"

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        looked_at, found = 0, []
        for place in ownerships(subject):
            looked_at += int(place.owned.sum())
            both = np.flatnonzero((place.free > 0) & (place.owned > 0))
            if len(both):
                (owner, *_) = place.owners(int(both[0]))
                text = f"pages {_some(both)} of pool {place.pool} are free and owned by {owner}"
                found.append(Violation(self.name, text, owner))
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


def _some(pages: np.ndarray) -> str:
    shown = ", ".join(map(str, pages[:6].tolist()))
    return shown if len(pages) <= 6 else f"{shown} and {len(pages) - 6} more"
