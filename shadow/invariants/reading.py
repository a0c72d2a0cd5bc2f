"""What a forward reads and writes: each row its own positions and no others, nothing that was freed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from shadow.invariants.invariant import PlainInvariant
from shadow.observation import Point, Violation
from shadow.observe.content import caches
from shadow.observe.hooks import tree_class
from shadow.observe.plans import planned
from shadow.observe.probe import Subject
from shadow.observe.writes import SMALL, WRITE_SET

_DECODE = frozenset((Point.DECODE,))


class Coverage:
    """The positions that the plan has a row attend to are exactly its kv_len, each where its page says."""

    name = "coverage"
    points = _DECODE

    def missing(self, subject: Subject) -> str | None:
        return subject.forward.missing

    def install(self, subject: Subject) -> None:
        subject.forward.install()

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        looked_at, found = 0, []
        lengths = subject.attended()
        for name, rows in planned(subject):
            for label, row in zip(subject.labels(), rows, strict=False):
                looked_at += 1
                if not row.covered == row.kv_len == lengths.get(label):
                    text = f"{name} covers {row.covered} positions of {label}, kv_len is {lengths.get(label)}"
                    found.append(Violation(self.name, text, label, late=True))
        return looked_at, found


class WritesOwnPosition(PlainInvariant):
    """A step changes one position of each row, its newest; no free page, and of the scratch page the first slot."""

    name = "write-set"
    points = _DECODE

    def missing(self, subject: Subject) -> str | None:
        return WRITE_SET.missing(subject)

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        looked_at, found = 0, []
        lengths = subject.attended()
        for name, changes in WRITE_SET.changes.items():
            looked_at += len(lengths) + 1
            for label, length in lengths.items():
                written = sorted(changes.by_sequence.get(label, ()))
                if written != [length - 1]:
                    text = f"{name}: positions {written} of {label} were written, its newest is {length - 1}"
                    found.append(Violation(self.name, text, label, late=True))
            if changes.free:
                page, offset = changes.free[0]
                text = f"{name}: free page {page} was written at offset {offset}"
                found.append(Violation(self.name, text, late=True))
            if changes.scratch:
                text = f"{name}: the scratch page was written at offsets {changes.scratch[:6]}"
                found.append(Violation(self.name, text, late=True))
        return looked_at, found


class Poison(PlainInvariant):
    """Nothing is read that nobody wrote: free pages are filled with NaN, and no row of logits has one.

    Filled are pages as they are freed, and the whole of a small pool as it is made; the scratch page never.
    """

    name = "poison"
    points = _DECODE

    def missing(self, subject: Subject) -> str | None:
        return None if tree_class("kv", "GPUPagedKVCacheManager") else "the pools have no known layout"

    def install(self, subject: Subject) -> None:
        pool_class = tree_class("kv", "GPUPagedKVCacheManager")

        def freeing(original: Callable[..., Any]) -> Callable[..., Any]:
            def hook(pool: Any, sequence_ids: Any) -> Any:
                held = pool._sequences
                pages = [page for index in sequence_ids for page in held.get(index, ())]
                done = original(pool, sequence_ids)
                with subject.observing():
                    still = {page for owned in pool._sequences.values() for page in owned}
                    _fill(pool, [page for page in pages if page not in still])
                return done

            return hook

        def making(original: Callable[..., Any]) -> Callable[..., Any]:
            def hook(pool: Any) -> Any:
                fresh = not pool.is_initialized
                done = original(pool)
                if fresh and sum(cache.nbytes for _, cache in caches(pool)) <= SMALL:
                    with subject.observing():
                        _fill(pool, list(range(pool.config.num_pages)))
                return done

            return hook

        subject.hooks.wrap(pool_class, "free_pages_for_sequences", freeing)
        subject.hooks.wrap(pool_class, "initialize", making)

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        logits = subject.logits
        if logits is None or not len(logits):
            return 0, []
        # A row's logits all come from one hidden state: where that has a NaN, the first one is a NaN.
        bad = torch.isnan(logits[:, 0]).tolist()
        found = []
        for entry, is_bad in zip(subject.entries, bad, strict=False):
            if is_bad:
                label = subject.names.label(entry)
                text = f"the logits of {label} are NaN: it read a place that nobody has written"
                found.append(Violation(self.name, text, label, late=True))
        return len(bad), found


@torch.inference_mode()
def _fill(pool: Any, pages: list[int]) -> None:
    exist = [page for page in pages if 0 <= page < pool.config.num_pages]
    for _, cache in caches(pool):
        if exist and cache.is_floating_point():
            cache[:, exist] = torch.nan
