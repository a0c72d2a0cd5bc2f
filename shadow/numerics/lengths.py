"""Squared lengths of errors and references, block by block in scratch memory that stays in the cache.

Products are added up by `vecdot` in the working type (float32, float64 for float64) over one segment at a time,
the segments in float64: all terms are positive, so the sum is within some 1e-6 of itself. What that cannot hold
(infinities, NaN, sums so small that products may have underflowed) is left out by `trusted`, for
shadow.numerics.exact to do.
"""

from __future__ import annotations

import numpy as np

from shadow.numerics.arrays import side_by_side
from shadow.numerics.scratch import Scratch

# Elements of one product: more of them, and BLAS starts threads, and float32 loses digits.
SEGMENT = 8192
# Elements worked on at a time, so that the blocks of both sides and their difference fit in 1 MiB.
BLOCK = 81920

Place = tuple[int | slice, int | slice]
"""(segment, row) of a block: some segments of one row, or one segment of some rows."""


class Lengths:
    """|candidate - legacy|^2 and |legacy|^2 of each row of words [rows, length], length > 0 (see arrays.words)."""

    def __init__(self, legacy: np.ndarray, candidate: np.ndarray, dtype: str) -> None:
        rows, length = legacy.shape
        self._length = length
        self._work = np.float64 if dtype == "float64" else np.float32
        self._bits = dtype == "bfloat16"
        self._narrow = dtype in ("float16", "bfloat16")
        self._candidate = candidate  # of which `sides` is only a view
        sides = side_by_side(legacy, candidate)
        if not self._bits:
            sides = sides.view(dtype)
        self._count = -(-length // SEGMENT)
        segment = length // self._count
        self._cut = self._count * segment
        self._segments = sides[:, :, : self._cut].reshape(2, rows, self._count, segment)
        self._tails = sides[:, :, self._cut :]
        parts = self._count if self._count > 1 else rows
        blocks = -(-parts // max(1, BLOCK // segment))
        self._at_once = -(-parts // blocks)
        self._block = self._at_once * segment
        self._unit = 1 if self._count > 1 else self._at_once
        columns = self._count + (self._cut < length)
        self._squares = np.zeros((2, columns, rows), self._work)

    @property
    def unit(self) -> int:
        """How many rows `measure` takes at a time, at most."""
        return self._unit

    def scratch(self) -> Scratch:
        """What one thread needs to measure."""
        return Scratch(self._block * (2 if self._narrow else 1), self._work)

    def measure(self, first: int, stop: int, scratch: Scratch) -> None:
        """Rows `first` to `stop`, all but their tails."""
        if self._count == 1:
            rows = slice(first, stop)
            self._put(self._segments[:, rows, 0], (0, rows), scratch)
            return
        for start in range(0, self._count, self._at_once):
            some = slice(start, min(start + self._at_once, self._count))
            self._put(self._segments[:, first, some], (some, first), scratch)

    def measure_tails(self, first: int, stop: int, scratch: Scratch) -> None:
        """The few elements of rows `first` to `stop` behind the last whole segment."""
        tail = self._length - self._cut
        some = max(1, self._block // max(1, tail))
        for start in range(first, stop if tail else first, some):
            rows = slice(start, min(start + some, stop))
            self._put(self._tails[:, rows], (self._count, rows), scratch)

    def squares(self, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """(|legacy|^2, |candidate - legacy|^2), float64 [rows]; without meaning for rows not measured."""
        return _sums(self._squares[0, :, rows]), _sums(self._squares[1, :, rows])

    def trusted(self, squares: np.ndarray) -> np.ndarray:
        """Which sums are as exact as this module promises: finite, and underflow took less than 1e-8 of them."""
        smallest = 1e-290 if self._work is np.float64 else 1e-30
        return np.isfinite(squares) & (squares >= self._length * smallest)

    def _put(self, sides: np.ndarray, place: Place, scratch: Scratch) -> None:
        """Measures blocks [2, n, m] and files the two lengths of each of their n rows under `place`."""
        if not self._narrow:
            ours, theirs = sides
            error = np.subtract(theirs, ours, out=scratch.error(ours.shape))
            np.vecdot(error, error, out=self._squares[(1, *place)])
            np.vecdot(ours, ours, out=self._squares[(0, *place)])
            return
        wide = scratch.wide(sides.shape)
        # One operation for both sides, and not `copyto`, which makes a copy where the scratch lies between them.
        np.concatenate((sides,), axis=None, out=wide.bits if self._bits else wide.numbers)
        np.subtract(wide.candidate, wide.legacy, out=wide.candidate)
        np.vecdot(wide.sides, wide.sides, out=self._squares[(slice(None), *place)])


def _sums(squares: np.ndarray) -> np.ndarray:
    """float64 [rows] of [columns, rows], added up one after the other: quicker than over an axis of one or two."""
    total = squares[0].astype(np.float64)
    for part in squares[1:]:
        total += part
    return total
