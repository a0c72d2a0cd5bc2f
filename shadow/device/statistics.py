"""What was found of each row, and the scores of shadow.numerics made of it. Needs numpy only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from shadow.numerics import Scores
from shadow.numerics.exact import ratio

NONE = 0x7FFFFFFF
"""The first index of a tile in which nothing differs."""


class Word(IntEnum):
    """The 32-bit words that the kernel writes for a row of a tile, in this order (see shadow.device.kernel).

    Floats are scaled: of ERROR and CONTROL by the square of a power of two, of LARGEST by that of ERROR. EXPONENTS
    are both, 256 x (that of CONTROL + 128) + (that of ERROR + 128).
    """

    ERROR = 0
    CONTROL = 1
    LARGEST = 2
    EXPONENTS = 3
    FIRST = 4
    DIFFERING = 5
    ONE_SIDE = 6
    BOTH_SIDES = 7


@dataclass(frozen=True, eq=False)
class RowStatistics:
    """Arrays of the tensors' shape without the last axis; lengths and errors float64, all others int64.

    Attributes:
        squared_error: of candidate - control; infinite under the policy of shadow.numerics, never NaN.
        squared_norm: of the control, what is not finite left out.
        max_abs: the largest error.
        first: the first element whose bits differ, -1 where none does.
        differing: how many.
        one_side, both_sides: elements that are NaN or infinite on one side only, on both.
        elements: pairs of values compared, of all rows.
    """

    squared_error: np.ndarray
    squared_norm: np.ndarray
    max_abs: np.ndarray
    first: np.ndarray
    differing: np.ndarray
    one_side: np.ndarray
    both_sides: np.ndarray
    elements: int

    def scores(self) -> Scores:
        """As `score_rows` gives them for the same tensors."""
        return Scores(ratio(self.squared_error, self.squared_norm), self.differing > 0, self.elements)

    def first_flat(self) -> int:
        """The first differing element of the whole tensor, counted through it; -1 where all bits are equal."""
        first = self.first.reshape(-1)
        rows = np.flatnonzero(first >= 0)
        if not len(rows):
            return -1
        return int(rows[0]) * (self.elements // len(first)) + int(first[rows[0]])


def decoded(words: np.ndarray, lead: tuple[int, ...], length: int) -> RowStatistics:
    """Of int32 [tiles of a row, words, rows] as the kernel leaves them; added up in float64."""
    error, control, largest = words[:, : Word.EXPONENTS].view(np.float32).astype(np.float64).swapaxes(0, 1)
    of_error, of_control = (words[:, Word.EXPONENTS] >> place & 0xFF for place in (0, 8))
    first = words[:, Word.FIRST].min(axis=0, initial=NONE).astype(np.int64)
    differing, one_side, both_sides = words[:, Word.DIFFERING :].sum(axis=0, dtype=np.int64)
    return RowStatistics(
        squared_error=np.ldexp(error, 2 * (of_error - 128)).sum(axis=0).reshape(lead),
        squared_norm=np.ldexp(control, 2 * (of_control - 128)).sum(axis=0).reshape(lead),
        max_abs=np.ldexp(largest, of_error - 128).max(axis=0, initial=0.0).reshape(lead),
        first=np.where(first == NONE, -1, first).reshape(lead),
        differing=differing.reshape(lead),
        one_side=one_side.reshape(lead),
        both_sides=both_sides.reshape(lead),
        elements=math.prod(lead) * length,
    )
