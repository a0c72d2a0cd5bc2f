"""Tier 2: everything about one row that differs, for what is shown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shadow.numerics.arrays import Floats, check_pair, widened, words
from shadow.numerics.exact import errors, relative_l2


@dataclass(frozen=True)
class VectorScore:
    """How far a candidate vector is from the legacy one. `index` is the first element that differs."""

    differing: int
    index: int
    max_abs: float
    relative_l2: float


@dataclass(frozen=True)
class RowScore(VectorScore):
    """Of a row whose largest element matters: where that is on each side."""

    argmax: tuple[int, int]


def score_row(legacy: Floats, candidate: Floats) -> RowScore | None:
    """None when both rows [V], V > 0, hold the same bits. ValueError: see the policy of shadow.numerics.

    `argmax` is the first of several equal maxima; a NaN counts as the largest, as torch.argmax has it.
    """
    check_pair(legacy, candidate)
    unequal = words(legacy) != words(candidate)
    if not unequal.any():
        return None
    error, reference = errors(legacy, candidate, unequal)
    return RowScore(
        differing=int(unequal.sum()),
        index=int(unequal.argmax()),
        max_abs=float(np.abs(error).max()),
        relative_l2=float(relative_l2(error, reference)),
        argmax=(_argmax(legacy), _argmax(candidate)),
    )


def _argmax(values: Floats) -> int:
    return int((widened(values) if not isinstance(values, np.ndarray) else values).argmax())
