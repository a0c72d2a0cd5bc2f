"""Scores of one row of logits against another: bitwise first, then relative L2 and maximum error, per row.

Policy: equal bits are equal, NaN and infinity included. Any other NaN or infinity is a difference and makes
both scores infinite, so it can never pass a bound. Against a zero row anything else scores infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RowScore:
    """How far a candidate row is from the legacy row. `index` is the first element that differs."""

    differing: int
    index: int
    max_abs: float
    relative_l2: float
    argmax: tuple[int, int]


def _length(vector: np.ndarray) -> float:
    """L2 norm without BLAS, whose threads would compete with those of the two sides."""
    return math.sqrt(float(np.square(vector).sum()))


def score_row(legacy: np.ndarray, candidate: np.ndarray) -> RowScore | None:
    """None when both rows hold the same bits. Both float32 of one shape (ValueError otherwise)."""
    if legacy.shape != candidate.shape or legacy.dtype != candidate.dtype:
        raise ValueError(f"rows are {legacy.dtype}{legacy.shape} and {candidate.dtype}{candidate.shape}")
    unequal = legacy.view(np.uint32) != candidate.view(np.uint32)
    if not unequal.any():
        return None
    index = int(unequal.argmax())
    reference = legacy.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = candidate.astype(np.float64) - reference
    if not np.isfinite(error).all():
        # Equal bits are no error, so a -inf mask present on both sides does not hide a finite difference.
        error[~unequal] = 0.0
        reference = reference[np.isfinite(reference)]
    if np.isfinite(error).all():
        norm, length = _length(reference), _length(error)
        relative = length / norm if norm else (math.inf if length else 0.0)
        largest = float(np.abs(error).max())
    else:
        largest = relative = math.inf
    return RowScore(
        differing=int(unequal.sum()),
        index=index,
        max_abs=largest,
        relative_l2=relative,
        argmax=(int(legacy.argmax()), int(candidate.argmax())),
    )
