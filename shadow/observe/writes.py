"""Which places of the GPU pools a forward has changed: found by looking at the pools, not at what was asked for.

The pools are kept as they were when the forward began (but for the places that are to be written, which are spoilt
first: what is written there may be what was there) and compared bit by bit when its tokens are selected. Pages
of sequences that are not in the batch are left out: a load from the host may be writing to them meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from shadow.observation import Kind, Point
from shadow.observe.content import caches
from shadow.observe.forward import Forward
from shadow.observe.hooks import tree_class
from shadow.observe.probe import Subject, Values, key

SMALL = (
    64 << 20
)  # bytes of a pool; of a larger one the keys of the first layer are watched, written like all others


@dataclass
class Changes:
    """One pool: positions by sequence; (page, offset) of free pages; offsets of the scratch page beyond the first.

    The first offset of the scratch page takes the writes of padded rows.
    """

    by_sequence: dict[str, list[int]] = field(default_factory=dict)
    free: list[tuple[int, int]] = field(default_factory=list)
    scratch: list[int] = field(default_factory=list)


class WriteSet:
    kind = Kind.WRITE_SET
    points = frozenset((Point.PREFILL, Point.DECODE, Point.BOUNDARY, Point.END))
    structural = False

    def __init__(self, small: int = SMALL) -> None:
        self._small = small
        self._before: dict[str, tuple[Any, list[torch.Tensor]]] = {}
        self.changes: dict[str, Changes] = {}

    def missing(self, subject: Subject) -> str | None:
        if tree_class("kv", "GPUPagedKVCacheManager") is None:
            return "the pools have no known layout"
        return subject.forward.missing

    def install(self, subject: Subject) -> None:
        self._before, self.changes = {}, {}

        def began(forward: Forward) -> None:
            with subject.observing():
                subject.memo.clear()
                self.changes = {}
                if not subject.shows_content():
                    self._before = {}  # of the last step that is looked at, and out of date at the next
                    return
                for name, pool in subject.pools():
                    if name not in self._before or self._before[name][0] is not pool.k_cache:
                        kept = [words.clone() for words in self._watched(pool)]
                        self._before[name] = (pool.k_cache, kept)
                    self._spoil(subject, pool, self._before[name][1])

        subject.forward.install()
        subject.forward.began.append(began)

    def values(self, subject: Subject, point: Point) -> Values:
        self.changes = {}
        if point is not Point.DECODE:
            self._before = {}  # loads, frees and new pools: whatever was kept is out of date
            return {}
        values: Values = {}
        lengths = subject.attended()
        rows = set(lengths)
        for name, pool in subject.pools():
            if name not in self._before or self._before[name][0] is not pool.k_cache:
                continue
            changes = self.changes[name] = self._compare(subject, pool, self._before[name][1], rows)
            for label in lengths:
                written = tuple(sorted(changes.by_sequence.get(label, ())))
                values[key(Kind.WRITE_SET, label, f"{name}.positions")] = written
            values[key(Kind.WRITE_SET, None, f"{name}.free")] = tuple(changes.free)
            values[key(Kind.WRITE_SET, None, f"{name}.scratch")] = tuple(changes.scratch)
        return values

    def _watched(self, pool: Any) -> Iterator[torch.Tensor]:
        """The caches as words [layers, pages, page size, words of a position]."""
        held = list(caches(pool))
        small = sum(cache.nbytes for _, cache in held) <= self._small
        for _, cache in held if small else held[:1]:
            rows = cache.flatten(3) if small else cache[:1].flatten(3)
            wide = rows.shape[-1] * rows.element_size() % 8 == 0
            yield rows.view(torch.int64 if wide else torch.uint8)

    def _spoil(self, subject: Subject, pool: Any, before: list[torch.Tensor]) -> None:
        """NaN in the place that each row is about to write, here and in what it is compared with.

        It may hold the very bits that are written to it: those of an earlier turn of a row that is done, or of
        another sequence with the same text whose page this was.
        """
        places = _newest(subject, pool)
        if not places:
            return
        pages, offsets = torch.tensor(places, device=pool.k_cache.device).unbind(1)
        held = [cache for _, cache in caches(pool)]
        with torch.inference_mode():
            for cache, words, kept in zip(held, self._watched(pool), before, strict=False):
                if cache.is_floating_point():
                    cache[: len(kept), pages, offsets] = torch.nan
                    kept[:, pages, offsets] = words[:, pages, offsets]

    def _compare(self, subject: Subject, pool: Any, before: list[torch.Tensor], rows: set[str]) -> Changes:
        changed: torch.Tensor | None = None
        for old, now in zip(before, self._watched(pool), strict=True):
            differs = (old != now).any(dim=-1).any(dim=0)
            changed = differs if changed is None else changed | differs
            pages = differs.any(dim=1).nonzero()[:, 0]
            old[:, pages] = now[:, pages]
        changes = Changes()
        places = [] if changed is None else changed.nonzero().tolist()
        owner = {
            int(page): (subject.names.of_index(index), place)
            for index, pages_of in pool._sequences.items()
            for place, page in enumerate(pages_of)
        }
        size = pool.config.page_size
        for page, offset in places:
            label, place = owner.get(page, (None, 0))
            if label is not None:
                if label in rows:
                    changes.by_sequence.setdefault(label, []).append(place * size + offset)
            elif page == pool.scratch_page_id:
                changes.scratch += [offset] if offset else []
            else:
                changes.free.append((page, offset))
        return changes


def _newest(subject: Subject, pool: Any) -> list[tuple[int, int]]:
    """(page, offset) that the rows of this step will write, of those that have such a page."""
    size, places = pool.config.page_size, []
    lengths = subject.attended()
    for index, pages in pool._sequences.items():
        last = lengths.get(subject.names.of_index(index), 0) - 1
        if 0 <= last // size < len(pages) and 0 <= int(pages[last // size]) < pool.config.num_pages:
            places.append((int(pages[last // size]), last % size))
    return places


WRITE_SET = WriteSet()
"""The one of this process: what it finds is also what an invariant looks at."""
