"""Whether two sides that chose different tokens stood before a near tie, or have diverged.

A row whose error is within the bound has `|error| <= limit * |legacy|` (relative L2). Spread over the V logits
that is `sigma = limit * |legacy| / sqrt(V)` each; of V Gaussian errors the largest is expected below
`sigma * sqrt(2 ln V)`, and the gap between two logits moves by at most twice the largest. Cauchy-Schwarz caps it:
no error of that length moves a gap by more than `sqrt(2) * limit * |legacy|`. Noise is the smaller of the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from shadow.noise.bound import Bound, Judgement, judge
from shadow.numerics import score_rows


class FlipKind(StrEnum):
    NONE = "same token"
    NEAR_TIE = "near tie"
    DIVERGENCE = "divergence"


@dataclass(frozen=True)
class Flip:
    """`margins`: by how much each side (legacy, candidate) prefers its own token to the other side's, in logits.

    `noise`: by how much the bound in use lets a gap between two logits move, in logits.
    """

    kind: FlipKind
    tokens: tuple[int, int]
    margins: tuple[float, float]
    noise: float
    score: float


def classify_flip(
    legacy: np.ndarray, candidate: np.ndarray, bound: Bound, tokens: tuple[int, int] | None = None
) -> Flip:
    """Judges the greedy choice between two rows of logits [V], V > 0, one dtype. ValueError otherwise.

    `tokens` is what the sides chose, by default the first maximum of each row. A near tie needs all of: the
    row's own score is within the bound, and both margins are within the noise. A token that is not the maximum
    of its own row (the choice was not greedy, or went wrong after the logits) has a negative margin and is never
    a near tie.
    """
    if legacy.ndim != 1 or not legacy.size:
        raise ValueError(f"a row of logits has one axis and at least one value, not {list(legacy.shape)}")
    scores = score_rows(legacy, candidate)
    score = float(scores.relative_l2)
    ours, theirs = tokens or (int(legacy.argmax()), int(candidate.argmax()))
    with np.errstate(invalid="ignore"):
        margins = (
            float(legacy[ours]) - float(legacy[theirs]),
            float(candidate[theirs]) - float(candidate[ours]),
        )
    noise = gap_noise(legacy, bound)
    if ours == theirs:
        return Flip(FlipKind.NONE, (ours, theirs), margins, noise, score)
    passes = judge(bool(scores.differs), score, bound) in (Judgement.EQUAL, Judgement.WITHIN_NOISE)
    greedy = _is_maximum(legacy, ours) and _is_maximum(candidate, theirs)
    near = passes and greedy and all(0 <= margin <= noise for margin in margins)
    return Flip(FlipKind.NEAR_TIE if near else FlipKind.DIVERGENCE, (ours, theirs), margins, noise, score)


def gap_noise(row: np.ndarray, bound: Bound) -> float:
    """By how much the gap between two logits of `row` [V] may move under `bound`; 0 where it has no limit."""
    if not bound.limit:
        return 0.0
    finite = row[np.isfinite(row)].astype(np.float64)
    length = bound.limit * math.sqrt(float(np.square(finite).sum()))
    spread = length / math.sqrt(row.size) * math.sqrt(2 * math.log(row.size))
    return min(2 * spread, math.sqrt(2) * length)


def _is_maximum(row: np.ndarray, token: int) -> bool:
    return bool(row[token] == row.max())
