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


def score_row(legacy: np.ndarray, candidate: np.ndarray) -> RowScore | None:
    """None when both rows hold the same bits. Both float32 of one shape (ValueError otherwise)."""
    if legacy.shape != candidate.shape or legacy.dtype != candidate.dtype:
        raise ValueError(f"rows are {legacy.dtype}{legacy.shape} and {candidate.dtype}{candidate.shape}")
    unequal = legacy.view(np.uint32) != candidate.view(np.uint32)
    if not unequal.any():
        return None
    index = int(unequal.argmax())
    # Equal bits count as no error, so a -inf mask present on both sides does not hide a finite difference.
    ours, theirs = legacy[unequal].astype(np.float64), candidate[unequal].astype(np.float64)
    if np.isfinite(ours).all() and np.isfinite(theirs).all():
        error = theirs - ours
        norm = float(np.linalg.norm(legacy[np.isfinite(legacy)].astype(np.float64)))
        length = float(np.linalg.norm(error))
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
