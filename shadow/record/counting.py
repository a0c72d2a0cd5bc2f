"""Counts, event by event, what two chunks have in common and where they differ, without building events.

Columns of integers are compared as arrays; every other pair of values once, however often it occurs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shadow.observation import Event, Key, Kind
from shadow.record.judge import Judge
from shadow.record.names import Shape
from shadow.record.pack import INTEGER, VALUE
from shadow.record.unpack import Block, Chunk


@dataclass(frozen=True, eq=False)
class Counts:
    """int64 [events] by kind: leaves compared, leaves that differ."""

    compared: dict[Kind, np.ndarray]
    differing: dict[Kind, np.ndarray]

    @property
    def any_differs(self) -> np.ndarray:
        """bool [events]."""
        return np.any([counts > 0 for counts in self.differing.values()], axis=0)


@dataclass(frozen=True, eq=False)
class _Matching:
    """Places of the keys that two shapes share, by kind, and how many keys of each kind only one has."""

    ours: dict[Kind, np.ndarray]
    theirs: dict[Kind, np.ndarray]
    alone: dict[Kind, int]


class Counter:
    """Remembers what was found about pairs of shapes and pairs of values, over the chunks of two records."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._matchings: dict[tuple[Shape, Shape], _Matching] = {}
        self._ids: dict[object, int] = {}
        self._pairs: dict[tuple[int, int], tuple[int, int]] = {}

    def count(self, ours: Chunk, theirs: Chunk, start: int, stop: int, offset: int) -> Counts:
        """Of events [start, stop) of `ours`, and those at `offset` more of `theirs`; points agree."""
        span = stop - start
        compared: dict[Kind, np.ndarray] = defaultdict(lambda: np.zeros(span, np.int64))
        differing: dict[Kind, np.ndarray] = defaultdict(lambda: np.zeros(span, np.int64))
        compared[Kind.SCHEDULE] += 1
        mine = self._identities(ours)
        other = mine if theirs is ours else self._identities(theirs)
        for own, their, events in _groups(ours, theirs, start, stop, offset):
            pair = own.shape, their.shape
            matching = self._matchings.get(pair)
            if matching is None:
                matching = self._matchings[pair] = self._match(*pair)
            columns = np.searchsorted(own.events, events), np.searchsorted(their.events, events + offset)
            for kind, alone in matching.alone.items():
                differing[kind][events - start] += alone
            for kind, places in matching.ours.items():
                cells = _Cells(ours, theirs, own, their, places, matching.theirs[kind], *columns)
                both, apart = self._cells(cells, mine, other)
                compared[kind][events - start] += both
                differing[kind][events - start] += apart
        self._rest(ours, theirs, start, stop, offset, compared, differing)
        return Counts(dict(compared), dict(differing))

    def _match(self, ours: Shape, theirs: Shape) -> _Matching:
        place = {key: number for number, key in enumerate(theirs.keys) if not self._judge.ignores(key)}
        own: dict[Kind, list[int]] = defaultdict(list)
        other: dict[Kind, list[int]] = defaultdict(list)
        alone: dict[Kind, int] = defaultdict(int)
        for number, key in enumerate(ours.keys):
            if self._judge.ignores(key):
                continue
            found = place.pop(key, None)
            if found is None:
                alone[key.kind] += 1
            else:
                own[key.kind].append(number)
                other[key.kind].append(found)
        for key in place:
            alone[key.kind] += 1
        return _Matching(_arrays(own), _arrays(other), dict(alone))

    def _identities(self, chunk: Chunk) -> np.ndarray:
        """int64 [values of the chunk]: one number for all equal values of either record."""
        return np.asarray(
            [self._ids.setdefault(identity, len(self._ids)) for identity in chunk.identities], np.int64
        )

    def _cells(self, cells: _Cells, mine: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int64 [events]: leaves compared and differing."""
        classes = cells.our_block.classes[cells.our_places], cells.their_block.classes[cells.their_places]
        numbers = classes[0] == INTEGER, classes[1] == INTEGER
        values = (classes[0] == VALUE) & (classes[1] == VALUE)
        integers = numbers[0] & numbers[1]
        a, b = cells.matrices()
        both = np.full(a.shape[1], np.count_nonzero(integers), np.int64)
        apart = np.count_nonzero(a[integers] != b[integers], axis=0).astype(np.int64)
        if values.any():
            keys = [cells.our_block.shape.keys[place] for place in cells.our_places[values].tolist()]
            found = self._values(cells, keys, mine, other, a[values], b[values])
            both, apart = both + found[0].sum(axis=0), apart + found[1].sum(axis=0)
        for row in np.flatnonzero(~(integers | values)).tolist():
            found = self._one_by_one(cells, row, a[row], b[row])
            both, apart = both + found[0], apart + found[1]
        return both, apart

    def _values(
        self,
        cells: _Cells,
        keys: list[Key],
        mine: np.ndarray,
        other: np.ndarray,
        a: np.ndarray,
        b: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        width = len(other) + 1
        distinct, first, inverse = np.unique(a * width + b, return_index=True, return_inverse=True)
        counts = np.empty((2, len(distinct)), np.int64)
        for index, (code, place) in enumerate(zip(distinct.tolist(), first.tolist(), strict=True)):
            ours, theirs = divmod(code, width)
            pair = int(mine[ours]), int(other[theirs])
            known = self._pairs.get(pair)
            if known is None:
                key = keys[place // a.shape[1]]
                known = self._judge.values(key, cells.ours.value(ours), cells.theirs.value(theirs))
                self._pairs[pair] = known
            counts[:, index] = known
        inverse = inverse.reshape(a.shape)
        return counts[0][inverse], counts[1][inverse]

    def _one_by_one(
        self, cells: _Cells, row: int, a: np.ndarray, b: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Arrays, and columns that hold integers on one side and other values on the other."""
        ours, theirs = int(cells.our_places[row]), int(cells.their_places[row])
        key = cells.our_block.shape.keys[ours]
        classes = int(cells.our_block.classes[ours]), int(cells.their_block.classes[theirs])
        found = [
            self._judge.values(key, cells.ours.cell(classes[0], x), cells.theirs.cell(classes[1], y))
            for x, y in zip(a.tolist(), b.tolist(), strict=True)
        ]
        counts = np.asarray(found, np.int64).reshape(-1, 2)
        return counts[:, 0], counts[:, 1]

    def _rest(
        self,
        ours: Chunk,
        theirs: Chunk,
        start: int,
        stop: int,
        offset: int,
        compared: dict[Kind, np.ndarray],
        differing: dict[Kind, np.ndarray],
    ) -> None:
        known: dict[tuple[int, int], tuple[int, int]] = {}
        for index in range(start, stop):
            pair = ours.extra(index), theirs.extra(index + offset)
            if pair == (0, 0):
                continue
            if pair not in known:
                events = (self._bare(ours, index), self._bare(theirs, index + offset))
                known[pair] = self._judge.rest(*events)
            both, apart = known[pair]
            compared[Kind.INVARIANT][index - start] += both
            differing[Kind.INVARIANT][index - start] += apart

    @staticmethod
    def _bare(chunk: Chunk, index: int) -> Event:
        return chunk.event(index, only_rest=True)


@dataclass(frozen=True, eq=False)
class _Cells:
    """The same keys of the same events on both sides."""

    ours: Chunk
    theirs: Chunk
    our_block: Block
    their_block: Block
    our_places: np.ndarray
    their_places: np.ndarray
    our_columns: np.ndarray
    their_columns: np.ndarray

    def matrices(self) -> tuple[np.ndarray, np.ndarray]:
        """int64 [keys, events] each."""
        return (
            _part(self.our_block.matrix, self.our_places, self.our_columns),
            _part(self.their_block.matrix, self.their_places, self.their_columns),
        )


def _arrays(places: dict[Kind, list[int]]) -> dict[Kind, np.ndarray]:
    return {kind: np.asarray(numbers, np.int64) for kind, numbers in places.items()}


def _part(matrix: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    if len(columns) == matrix.shape[1]:
        return matrix[rows]
    return matrix[np.ix_(rows, columns)]


def _groups(
    ours: Chunk, theirs: Chunk, start: int, stop: int, offset: int
) -> Iterator[tuple[Block, Block, np.ndarray]]:
    """Pairs of blocks with the places, in `ours`, of the events that lie in both."""
    for own in ours.blocks:
        events = own.events[(own.events >= start) & (own.events < stop)]
        for their in theirs.blocks:
            common = events[np.isin(events + offset, their.events, assume_unique=True)]
            if len(common):
                yield own, their, common
