"""What a row of logits says as a whole. By numpy: a sum must not depend on the number of torch's threads."""

from __future__ import annotations

import math

import numpy as np

from batchgen.scheduler.tokens.staging import Row


def top_probability(logits: Row) -> float:
    """Of the likeliest token; nan where the largest logit is not finite."""
    return entropy_and_top(logits)[1]


def entropy_and_top(logits: Row) -> tuple[float, float]:
    """Entropy in nats, and the probability of the likeliest token; nan for both where the largest logit is not
    finite."""
    largest = logits.max()
    if not np.isfinite(largest):
        return math.nan, math.nan
    below = logits.astype(np.float64) - float(largest)
    weights = np.exp(below)
    mass = float(weights.sum())
    below[weights == 0.0] = 0.0  # 0 * -inf
    return math.log(mass) - float((weights * below).sum()) / mass, 1.0 / mass
