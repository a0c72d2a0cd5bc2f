"""Adaptive sampling: zones, gates, boosts, and what it remembers of a row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from batchgen.scheduler.sequences import ActiveSeq, Adaptive, RowSampling, Thinking, ToolCalls
from batchgen.scheduler.tokens.adaptive import Zone, adapt, distinct_ratio, zone_of
from batchgen.scheduler.tokens.distribution import entropy_and_top
from tests.batchgen.scheduler.tokens.world import (
    CALL,
    CALL_END,
    EOS,
    VOCAB,
    Script,
    feed,
    make_row,
    peak,
    step,
)

FLAT = np.zeros(VOCAB, np.float32)


def top(probability: float) -> np.ndarray:
    """Logits whose likeliest token has this probability."""
    return peak(3, height=math.log(probability / (1 - probability) * (VOCAB - 1)))


def row_in(zone: Zone, temperature: float = 1.0, **more: Any) -> ActiveSeq:
    return make_row(
        sampling=RowSampling(temperature),
        thinking=Thinking(inside=zone is Zone.THINKING),
        tools=ToolCalls(opened=zone is Zone.TOOL_CALL),
        grammar=Script() if zone is Zone.STRUCTURED else None,
        **more,
    )


@pytest.mark.parametrize("zone", Zone)
def test_zones(zone: Zone) -> None:
    assert zone_of(row_in(zone)) is zone


def test_a_call_comes_before_thinking_before_a_grammar() -> None:
    row = make_row(grammar=Script(), thinking=Thinking(inside=True), tools=ToolCalls(opened=True))
    assert zone_of(row) is Zone.TOOL_CALL
    row.tools.opened = False
    assert zone_of(row) is Zone.THINKING


def test_only_a_required_call_makes_the_zone_and_for_good() -> None:
    for required in (True, False):
        row = make_row(tools=ToolCalls(required=required, tools_present=True))
        feed(row, [CALL, 1, CALL_END, 2, 3])
        assert zone_of(row) is (Zone.TOOL_CALL if required else Zone.FREE_TEXT)


@pytest.mark.parametrize(
    ("zone", "gate"),
    [(Zone.TOOL_CALL, 0.80), (Zone.STRUCTURED, 0.85), (Zone.FREE_TEXT, 0.90), (Zone.THINKING, 0.95)],
)
def test_a_likely_enough_token_is_taken(zone: Zone, gate: float) -> None:
    assert adapt(row_in(zone), top(gate + 0.005)) == 0.0
    assert adapt(row_in(zone), top(gate - 0.005)) > 0.0


@pytest.mark.parametrize(
    ("zone", "base", "expected"),
    [
        (Zone.FREE_TEXT, 1.5, 1.5),
        (Zone.THINKING, 1.5, 1.5),
        (Zone.STRUCTURED, 1.5, 0.9),
        (Zone.TOOL_CALL, 1.5, 0.3),
        (Zone.TOOL_CALL, 0.2, 0.2),
        (Zone.FREE_TEXT, 0.0, 0.0),
        (Zone.THINKING, 0.0, 0.0),
    ],
)
def test_the_temperature_of_a_zone(zone: Zone, base: float, expected: float) -> None:
    assert adapt(row_in(zone, base), FLAT) == pytest.approx(expected)


@pytest.mark.parametrize(("run", "boost"), [(6, 0.0), (7, 0.1), (14, 0.1), (15, 0.2), (31, 0.3)])
def test_a_run_of_low_entropy_raises_the_temperature(run: int, boost: float) -> None:
    row = row_in(Zone.THINKING)
    row.adaptive = Adaptive(low_entropy_run=run)
    # 0.93 at the top: an entropy below 0.5 nats, and below the gate of thinking.
    assert adapt(row, top(0.94)) == pytest.approx(1.0 + boost)
    assert row.adaptive.low_entropy_run == run + 1


def test_one_open_token_ends_the_run() -> None:
    row = row_in(Zone.FREE_TEXT)
    row.adaptive = Adaptive(low_entropy_run=40)
    assert adapt(row, FLAT) == 1.0 and row.adaptive.low_entropy_run == 0


def test_damaged_logits_say_nothing() -> None:
    row = row_in(Zone.FREE_TEXT)
    row.adaptive = Adaptive(low_entropy_run=5)
    for value in (np.nan, np.inf):
        damaged = FLAT.copy()
        damaged[2] = value
        adapt(row, damaged)
    adapt(row, np.full(VOCAB, -np.inf, np.float32))
    assert row.adaptive.low_entropy_run == 5


@pytest.mark.parametrize(
    ("ratio", "multiplier"), [(0.14, 1.8), (0.15, 1.4), (0.24, 1.4), (0.25, 1.2), (0.34, 1.2), (0.35, 1.0)]
)
def test_repetitive_text_raises_the_temperature(ratio: float, multiplier: float) -> None:
    row = row_in(Zone.FREE_TEXT)
    row.adaptive = Adaptive(lz_ratio=ratio)
    assert adapt(row, FLAT) == pytest.approx(multiplier)


def test_a_tool_call_is_neither_boosted_nor_multiplied() -> None:
    row = row_in(Zone.TOOL_CALL)
    row.adaptive = Adaptive(low_entropy_run=50, lz_ratio=0.1)
    assert adapt(row, top(0.75)) == 0.3


def test_boost_and_multiplier_of_a_structured_zone() -> None:
    row = row_in(Zone.STRUCTURED)
    row.adaptive = Adaptive(low_entropy_run=8, lz_ratio=0.2)
    assert adapt(row, top(0.84)) == pytest.approx((0.6 + 0.0) * 1.4)  # 0.84 is open enough to end the run
    row.adaptive = Adaptive(low_entropy_run=31, lz_ratio=0.2)
    sharp = np.full(VOCAB, -20.0, np.float32)
    sharp[[3, 4]] = [1.5, 0.0]  # 0.82 and 0.18: 0.47 nats
    assert adapt(row, sharp) == pytest.approx((0.6 + 0.3) * 1.4)


def test_the_ratio_is_looked_at_from_32_outputs_on_and_every_16() -> None:
    row = row_in(Zone.FREE_TEXT, outputs=[1] * 31)
    seen = []
    for _ in range(20):
        adapt(row, FLAT)
        seen.append(row.adaptive.lz_checked_at)
        row.output_tokens.append(1)
    assert seen == [0] + [32] * 16 + [48] * 3
    assert row.adaptive.lz_ratio < 0.05


def test_the_ratio_is_that_of_the_windows_of_the_last_128_tokens() -> None:
    assert distinct_ratio([0, 0]) == pytest.approx(4 / (6 + 5 + 4 + 3))
    assert distinct_ratio([0x03020100, 0x07060504]) == 1.0
    row = row_in(Zone.FREE_TEXT, outputs=list(range(1000, 1100)) + [1] * 128)
    adapt(row, FLAT)
    assert row.adaptive.lz_ratio == distinct_ratio([1] * 128)


def test_entropy_in_nats() -> None:
    assert entropy_and_top(FLAT) == pytest.approx((math.log(VOCAB), 1 / VOCAB))
    certain = np.full(VOCAB, -np.inf, np.float32)
    certain[4] = 2.0
    assert entropy_and_top(certain) == (0.0, 1.0)


def test_it_looks_at_the_raw_logits() -> None:
    """A held EOS is nearly certain: that counts as low entropy, though the mask then leaves a flat row."""
    row = make_row(min_tokens=9, sampling=RowSampling(1.0))
    step([row], [peak(EOS, height=30.0)], adaptive=True)
    assert row.adaptive.low_entropy_run == 1
    # And opens the gate: of the flat rest the first is taken, not a draw.
    assert row.output_tokens == [0]


def test_switched_off_it_neither_looks_nor_changes_anything() -> None:
    row = make_row(sampling=RowSampling(1.0), outputs=[1] * 40)
    step([row], [peak(3, height=30.0)])
    assert (row.adaptive.low_entropy_run, row.adaptive.lz_checked_at) == (0, 0)


def test_the_devices_choice_does_not_update_it() -> None:
    row = make_row(outputs=[1] * 40)
    step([row], [peak(3, height=30.0)], argmax=True, adaptive=True)
    assert (row.adaptive.low_entropy_run, row.adaptive.lz_checked_at) == (0, 0)
