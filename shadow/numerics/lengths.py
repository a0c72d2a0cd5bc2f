"""Squared lengths of errors and references, block by block in scratch memory that stays in the cache.

Products are added up by `vecdot` in the working type (float32, float64 for float64) over one segment at a time,
the segments in float64: all terms are positive, so the sum is within some 1e-6 of itself. What that cannot hold
(infinities, NaN, sums so small that products may have underflowed) is left out by `trusted`, for
shadow.numerics.exact to do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# Elements of one product: more of them, and BLAS starts threads, and float32 loses digits.
SEGMENT = 8192
# Elements worked on at a time, so that the blocks of both sides and their difference fit in 1 MiB.
BLOCK = 81920

Place = tuple[int | slice, int | slice]
"""(segment, row) of a block: some segments of one row, or one segment of some rows."""
_HIGH = np.uint32(0xFFFF0000)
_HALF = np.uint32(16)


class Lengths:
    """|candidate - legacy|^2 and |legacy|^2 of each row of words [rows, length], length > 0 (see arrays.words)."""

    def __init__(self, legacy: np.ndarray, candidate: np.ndarray, dtype: str) -> None:
        rows, length = legacy.shape
        self._length = length
        self._work = np.float64 if dtype == "float64" else np.float32
        # Either half of a 32-bit word is a float32 after one operation of that width.
        self._pairs = dtype == "bfloat16" and length % 2 == 0
        self._narrow = dtype in ("float16", "bfloat16")
        if not self._pairs and dtype != "bfloat16":
            legacy, candidate = legacy.view(dtype), candidate.view(dtype)
        self._count = -(-length // SEGMENT)
        segment = length // self._count
        if self._count > 1:
            segment -= segment % 2
        self._cut = self._count * segment
        self._legacy, self._candidate = legacy, candidate
        shape = (rows, self._count, segment)
        self._our_segments = legacy[:, : self._cut].reshape(shape)
        self._their_segments = candidate[:, : self._cut].reshape(shape)
        self._at_once = max(1, BLOCK // segment)
        self._block = self._at_once * segment
        self._unit = 1 if self._count > 1 else self._at_once
        columns = self._count + (self._cut < length)
        squares = np.zeros((2, 2 if self._pairs else 1, columns, rows), self._work)
        self._squares = squares if self._pairs else squares[:, 0]

    @property
    def unit(self) -> int:
        """How many rows `measure` takes at a time, at most."""
        return self._unit

    def scratch(self) -> np.ndarray:
        """What one thread needs to measure."""
        return np.empty((2 if self._narrow else 1, self._block), self._work)

    def measure(self, first: int, stop: int, scratch: np.ndarray) -> None:
        """Rows `first` to `stop`, all but their tails."""
        ours, theirs = self._our_segments, self._their_segments
        if self._count == 1:
            rows = slice(first, stop)
            self._put(ours[rows, 0], theirs[rows, 0], (0, rows), scratch)
            return
        for start in range(0, self._count, self._at_once):
            some = slice(start, min(start + self._at_once, self._count))
            self._put(ours[first, some], theirs[first, some], (some, first), scratch)

    def measure_tails(self, first: int, stop: int, scratch: np.ndarray) -> None:
        """The few elements of rows `first` to `stop` behind the last whole segment."""
        tail = self._length - self._cut
        some = max(1, self._block // max(1, tail))
        for start in range(first, stop if tail else first, some):
            rows = slice(start, min(start + some, stop))
            ours, theirs = self._legacy[rows, self._cut :], self._candidate[rows, self._cut :]
            self._put(ours, theirs, (self._count, rows), scratch)

    def squares(self) -> tuple[np.ndarray, np.ndarray]:
        """(|candidate - legacy|^2, |legacy|^2), float64 [rows]; without meaning for rows not measured."""
        return _sums(self._squares[0]), _sums(self._squares[1])

    def trusted(self, squares: np.ndarray) -> np.ndarray:
        """Which sums are as exact as this module promises: finite, and underflow took less than 1e-8 of them."""
        smallest = 1e-290 if self._work is np.float64 else 1e-30
        return np.isfinite(squares) & (squares >= self._length * smallest)

    def _put(self, ours: np.ndarray, theirs: np.ndarray, place: Place, scratch: np.ndarray) -> None:
        """Measures blocks [n, m] and files the two lengths of each of their rows under `place`."""
        shape, size = ours.shape, ours.size
        if not self._narrow:
            error = np.subtract(theirs, ours, out=scratch[0, :size].reshape(shape))
            np.vecdot(error, error, out=self._squares[(0, *place)])
            np.vecdot(ours, ours, out=self._squares[(1, *place)])
            return
        at: Any = (slice(None), *place)
        if self._pairs:
            shape, at = (2, shape[0], shape[1] // 2), (slice(None), *at)
        wide = scratch[:, :size].reshape(2, *shape)
        self._widen(theirs, wide[0])
        self._widen(ours, wide[1])
        np.subtract(wide[0], wide[1], out=wide[0])
        np.vecdot(wide, wide, out=self._squares[at])

    def _widen(self, block: np.ndarray, out: np.ndarray) -> None:
        if self._pairs:
            both, bits = block.view(np.uint32), out.view(np.uint32)
            np.left_shift(both, _HALF, out=bits[0])
            np.bitwise_and(both, _HIGH, out=bits[1])
        elif block.dtype == np.float16:
            np.copyto(out, block)
        else:
            np.left_shift(block, _HALF, out=out.view(np.uint32))


def _sums(squares: np.ndarray) -> np.ndarray:
    """float64 [rows] of [..., rows], added up one after the other: quicker than over an axis of one or two."""
    total = np.zeros(squares.shape[-1])
    for part in squares.reshape(-1, len(total)):
        total += part
    return total
