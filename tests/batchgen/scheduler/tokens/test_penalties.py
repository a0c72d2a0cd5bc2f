"""Penalties and bias: what they look at, and by how much they change a logit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from batchgen.scheduler.sequences import RowSampling
from batchgen.scheduler.tokens.penalties import apply_penalties, continuations, penalty_history
from tests.batchgen.scheduler.tokens.world import CALL_END


def changed(history: list[int], start: float = 2.0, **sampling: Any) -> dict[int, float]:
    logits = np.full(10, start, np.float32)
    apply_penalties(logits, RowSampling(**sampling), history)
    return {i: pytest.approx(float(x), abs=1e-5) for i, x in enumerate(logits) if x != np.float32(start)}


def test_history_begins_after_the_last_call() -> None:
    assert penalty_history([1, CALL_END, 2, CALL_END, 3, 4], CALL_END, 0) == [3, 4]
    assert penalty_history([1, 2], CALL_END, 0) == [1, 2]
    assert penalty_history([1, CALL_END, 2], None, 0) == [1, CALL_END, 2]
    assert penalty_history([1, CALL_END], CALL_END, 0) == []


def test_history_is_the_last_of_it() -> None:
    assert penalty_history([1, 2, 3, 4], CALL_END, 3) == [2, 3, 4]
    assert penalty_history([1, 2, 3, 4], CALL_END, 1) == [4]
    assert penalty_history([1, 2, 3, 4], CALL_END, 9) == [1, 2, 3, 4]
    assert penalty_history([1, CALL_END, 3, 4], CALL_END, 3) == [3, 4]
    assert penalty_history([CALL_END, 2, 3, 4], CALL_END, 3) == [2, 3, 4]


def test_repetition_counts_a_token_once_and_always_makes_it_less_likely() -> None:
    assert changed([3, 3, 4], repetition_penalty=1.25) == {3: 1.6, 4: 1.6}
    assert changed([3, 3, 4], start=-2.0, repetition_penalty=1.25) == {3: -2.5, 4: -2.5}


def test_a_repetition_penalty_below_one_makes_a_token_likelier() -> None:
    assert changed([3], start=0.5, repetition_penalty=0.5) == {3: 1.0}
    assert changed([3], start=-0.5, repetition_penalty=0.5) == {3: -0.25}


def test_a_repetition_penalty_that_is_not_positive_changes_nothing() -> None:
    assert changed([3], repetition_penalty=0.0) == {}


def test_presence_counts_a_token_once_and_frequency_every_time() -> None:
    assert changed([3, 3, 4], presence_penalty=0.5) == {3: 1.5, 4: 1.5}
    assert changed([3, 3, 4], frequency_penalty=0.5) == {3: 1.0, 4: 1.5}
    assert changed([3, 3, 4], presence_penalty=-1.0, frequency_penalty=0.5) == {4: 2.5}


def test_repetition_comes_before_presence_and_bias_last() -> None:
    assert changed([3], repetition_penalty=2.0, presence_penalty=0.5, logit_bias={3: 7.0}) == {3: 7.5}


def test_bias_is_added_whatever_was_written() -> None:
    assert changed([], logit_bias={0: 1.0, 1: -3.0, 10: 5.0, 99: 5.0, -1: 5.0}) == {0: 3.0, 1: -1.0}


def test_what_would_continue_a_repetition() -> None:
    #          1 2 3 was followed by 4, 2 3 by 5, 3 by 6
    assert continuations([1, 2, 3, 4, 9, 2, 3, 5, 3, 6, 1, 2, 3]) == {4: 3, 5: 2, 6: 1}
    assert continuations([7, 7, 7]) == {7: 2}
    assert continuations([1]) == continuations([]) == {}


def test_dry_grows_with_the_length_of_the_repetition() -> None:
    history = [1, 2, 3, 4, 9, 2, 3, 5, 3, 6, 1, 2, 3]
    found = changed(history, dry_multiplier=0.5, dry_base=2.0, dry_allowed_length=2)
    assert found == {4: 2.0 - 0.5 * 2, 5: 2.0 - 0.5}


def test_dry_of_a_very_long_repetition_stays_a_number() -> None:
    logits = np.zeros(10, np.float32)
    apply_penalties(logits, RowSampling(dry_multiplier=1.0, dry_base=3.0), [5] * 300)
    assert np.isfinite(logits).all() and logits.argmin() == 5


def test_lz_begins_with_three_tokens() -> None:
    history = [1, 2, 3, 4, 9, 2, 3, 5, 3, 6, 1, 2, 3]
    assert changed(history, lz_penalty=0.5) == {4: 2.0 - 0.5 * math.log2(4)}


def test_a_history_with_ids_beyond_the_vocabulary_is_harmless() -> None:
    everything = RowSampling(repetition_penalty=2.0, presence_penalty=1.0, dry_multiplier=1.0, lz_penalty=1.0)
    logits = np.zeros(10, np.float32)
    apply_penalties(logits, everything, [10, 51, 52, 10, 51, 52, 10, 51, 52])
    assert (logits == 0).all()
