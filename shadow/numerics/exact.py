"""Scores in wide arithmetic under the whole policy, for what the quick pass cannot judge and for what is shown."""

from __future__ import annotations

import math

import numpy as np

from shadow.numerics.arrays import Floats, widened


def errors(legacy: Floats, candidate: Floats, unequal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(candidate - legacy, legacy), wide, 0 where bits are equal; an error that is no number is infinite.

    Where the reference is NaN or infinite it becomes 0: it adds nothing to a length.
    """
    reference = widened(legacy)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(unequal, widened(candidate) - reference, 0.0)
    error[np.isnan(error)] = math.inf
    reference[~np.isfinite(reference)] = 0.0
    return error, reference


def relative_l2(error: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """|error| / |reference| over the last axis, float64; any error against a zero reference is infinite."""
    with np.errstate(over="ignore"):
        return ratio(np.square(error).sum(axis=-1), np.square(reference).sum(axis=-1))


def ratio(error: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """`relative_l2` of squared lengths."""
    with np.errstate(divide="ignore", invalid="ignore"):
        length = np.sqrt(error)
        score = np.where(length == 0, 0.0, length / np.sqrt(reference))
        return np.asarray(score, dtype=np.float64)
