"""Tier 0 and tier 1 of whole tensors: which rows differ, and by how much, in one pass over both."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from shadow.numerics.arrays import Floats, check_pair, from_words, words
from shadow.numerics.exact import errors, ratio, relative_l2
from shadow.numerics.lengths import BLOCK, Lengths

_GLANCE = 256  # elements that tell most unequal units apart before all of a unit is read
_JUDGED = 16384  # rows judged at a time, so that their few numbers stay in the cache


@dataclass(frozen=True, eq=False)
class Scores:
    """`relative_l2` float64 and `differs` bool, both of the tensors' shape without the last axis.

    A score is 0 where bits are equal and never NaN; `elements` is how many pairs of values were compared.
    """

    relative_l2: np.ndarray
    differs: np.ndarray
    elements: int

    @property
    def equal(self) -> bool:
        """Whether both tensors hold the same bits."""
        return not self.differs.any()

    @property
    def worst(self) -> tuple[int, ...] | None:
        """Index of the largest score among rows that differ, the first of several; None where none differs."""
        if self.equal:
            return None
        at = np.where(self.differs, self.relative_l2, -1.0).argmax()
        return tuple(int(axis) for axis in np.unravel_index(at, self.differs.shape))

    @property
    def maximum(self) -> float:
        """The largest score, 0.0 where no bit differs."""
        return float(self.relative_l2.max(initial=0.0))


def score_rows(legacy: Floats, candidate: Floats, *, threads: int = 1) -> Scores:
    """Scores over the last axis: [R, V] gives [R], [R, H, D] gives [R, H]. ValueError: see shadow.numerics.

    A score is within 1e-5 of itself. `threads` share the rows; temporaries are of cache size, whatever the tensor.
    """
    check_pair(legacy, candidate)
    *lead, length = legacy.shape
    count = int(np.prod(lead, dtype=np.int64))
    scores, differs = np.zeros(count), np.zeros(count, dtype=bool)
    if count and length:
        _Work(legacy, candidate, scores, differs).run(max(1, min(threads, count)))
    return Scores(scores.reshape(lead), differs.reshape(lead), count * length)


class _Work:
    """Fills `scores` and `differs` [rows]."""

    def __init__(self, legacy: Floats, candidate: Floats, scores: np.ndarray, differs: np.ndarray) -> None:
        shape = (len(scores), legacy.shape[-1])
        self._dtype = str(legacy.dtype)
        self._legacy, self._candidate = (words(side).reshape(shape) for side in (legacy, candidate))
        self._scores, self._differs = scores, differs
        self._lengths = Lengths(self._legacy, self._candidate, self._dtype)
        self._measured = np.zeros(len(scores), dtype=bool)

    def run(self, threads: int) -> None:
        rows = len(self._scores)
        bounds = [rows * share // threads for share in range(threads + 1)]
        others = [threading.Thread(target=self._share, args=pair) for pair in pairwise(bounds[1:])]
        for thread in others:
            thread.start()
        self._share(bounds[0], bounds[1])
        for thread in others:
            thread.join()
        with np.errstate(all="ignore"):
            for first in range(0, rows, _JUDGED):
                self._judge(slice(first, min(first + _JUDGED, rows)))

    def _share(self, start: int, stop: int) -> None:
        scratch, unit = self._lengths.scratch(), self._lengths.unit
        with np.errstate(all="ignore"):
            for first in range(start, stop, unit):
                last = min(first + unit, stop)
                if not _same(self._legacy[first:last], self._candidate[first:last]):
                    self._measured[first:last] = True
                    self._lengths.measure(first, last, scratch)
            self._lengths.measure_tails(start, stop, scratch)

    def _judge(self, rows: slice) -> None:
        reference, error = self._lengths.squares(rows)
        sure = self._lengths.trusted(error) & self._lengths.trusted(reference)
        self._differs[rows] = sure
        self._scores[rows] = np.where(sure, ratio(error, reference), 0.0)
        unsure = rows.start + np.flatnonzero(self._measured[rows] & ~sure)
        some = max(1, BLOCK // self._legacy.shape[1])
        for start in range(0, len(unsure), some):
            self._judge_exactly(unsure[start : start + some])

    def _judge_exactly(self, rows: np.ndarray) -> None:
        differing = (self._legacy[rows] != self._candidate[rows]).any(axis=1)
        rows = rows[differing]
        if len(rows):
            ours, theirs = self._legacy[rows], self._candidate[rows]
            values = from_words(ours, self._dtype), from_words(theirs, self._dtype)
            self._scores[rows] = relative_l2(*errors(*values, ours != theirs))
            self._differs[rows] = True


def _same(legacy: np.ndarray, candidate: np.ndarray) -> bool:
    """Equality of contiguous words, block by block, so that it stops early and makes no large temporary."""
    if legacy[0, :_GLANCE].tobytes() != candidate[0, :_GLANCE].tobytes():
        return False
    ours, theirs = legacy.reshape(-1), candidate.reshape(-1)
    blocks = range(0, len(ours), BLOCK)
    return not any(np.not_equal(ours[at : at + BLOCK], theirs[at : at + BLOCK]).any() for at in blocks)
