"""Who is wrong: the distance of both sides' logits to a float64 recomputation without any paging.

Two sides that differ say nothing about which one is wrong, and a candidate may be as wrong as its reference is.
A side counts as further only beyond `factor` times the other's distance plus the bound (the rule of
torch._dynamo.utils.same, whose factors these are).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch

from shadow.numerics import score_rows
from shadow.reference import Reference

_FACTOR = {torch.float16: 3.0, torch.bfloat16: 3.0}


class Further(StrEnum):
    LEGACY = "legacy"
    CANDIDATE = "candidate"
    NEITHER = "both within noise"


@dataclass(frozen=True)
class Arbitration:
    """Relative L2 of each side's row to the reference row; `argmax` of legacy, candidate and reference."""

    legacy: float
    candidate: float
    further: Further
    argmax: tuple[int, int, int]

    def __str__(self) -> str:
        distances = f"legacy {self.legacy:.3g}, candidate {self.candidate:.3g} from float64"
        if self.further is Further.NEITHER:
            return f"{distances}: {self.further.value}"
        return f"{distances}: the {self.further.value} is further off"


def arbitrate(
    reference: np.ndarray, legacy: np.ndarray, candidate: np.ndarray, *, limit: float, factor: float = 2.0
) -> Arbitration:
    """Rows of logits [V], `reference` float64. `limit`: the bound in use, 0.0 where sides are to be bit-equal.

    NaN or an infinity where the reference has a number puts its side infinitely far off. ValueError for rows of
    other shapes.
    """
    legacy_distance, candidate_distance = (
        float(score_rows(reference, side.astype(np.float64)).relative_l2) for side in (legacy, candidate)
    )
    further = Further.NEITHER
    if candidate_distance > factor * legacy_distance + limit:
        further = Further.CANDIDATE
    elif legacy_distance > factor * candidate_distance + limit:
        further = Further.LEGACY
    argmax = (int(legacy.argmax()), int(candidate.argmax()), int(reference.argmax()))
    return Arbitration(legacy_distance, candidate_distance, further, argmax)


def arbitrate_position(
    model: Reference,
    tokens: Sequence[int],
    legacy: np.ndarray,
    candidate: np.ndarray,
    *,
    limit: float,
    dtype: torch.dtype = torch.float32,
) -> Arbitration:
    """The rows that both sides computed after `tokens` (prompt and output so far), recomputed in full.

    `dtype`: what the sides compute in; types of 16 bits are given a wider factor.
    """
    row = model.logits(model.history(tokens), len(tokens) - 1).numpy()
    return arbitrate(row, legacy, candidate, limit=limit, factor=_FACTOR.get(dtype, 2.0))
