"""Room for blocks of numbers, of the size of the cache, that one thread uses again and again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True, eq=False)
class Wide:
    """Room for a block of both sides, `sides` [2, n, m], as each side, and flat as `numbers` or as `bits` to fill.

    `bits` are 32-bit words that begin two bytes behind the numbers: a bfloat16 written there is the upper half of
    a float32, and the zeros above it are the lower half of the next (on a little-endian machine).
    """

    sides: np.ndarray
    legacy: np.ndarray
    candidate: np.ndarray
    numbers: np.ndarray
    bits: np.ndarray


class Scratch:
    """Room of one thread for `size` numbers: the errors of a block, or both of its sides. Made when first needed.

    Views are made once for each shape: a thread that is not inside an operation keeps the others waiting.
    """

    def __init__(self, size: int, dtype: type[np.floating]) -> None:
        self._size, self._dtype = size, dtype
        self._errors: dict[tuple[int, ...], np.ndarray] = {}
        self._wide: dict[tuple[int, ...], Wide] = {}

    @cached_property
    def _room(self) -> np.ndarray:
        room = np.empty(self._size + 1, self._dtype)
        room[0] = 0  # the lower half of the first number of `Wide.legacy`, which nothing else writes
        return room

    def error(self, shape: tuple[int, ...]) -> np.ndarray:
        """Room for a block [n, m]."""
        if shape not in self._errors:
            self._errors[shape] = self._room[: shape[0] * shape[1]].reshape(shape)
        return self._errors[shape]

    def wide(self, shape: tuple[int, ...]) -> Wide:
        """Room for blocks [2, n, m]."""
        if shape not in self._wide:
            end = shape[0] * shape[1] * shape[2]
            numbers = self._room[:end]
            sides = numbers.reshape(shape)
            bits = self._room.view(np.uint16)[1 : 2 * end + 1].view(np.uint32)
            self._wide[shape] = Wide(sides, sides[0], sides[1], numbers, bits)
        return self._wide[shape]
