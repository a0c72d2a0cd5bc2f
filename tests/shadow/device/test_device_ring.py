"""Slots, steps and what arrives when; the streams of a real device are those of test_device_cuda."""

from __future__ import annotations

import pytest

from tests.shadow.device import scenarios
from tests.shadow.device.interpreted import Interpreter


def expected(step: int) -> tuple[int, int, float]:
    return step, step, float(step + 1)


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_each_step_is_read_one_step_late_whatever_the_slots(interpreted: Interpreter, slots: int) -> None:
    found = interpreted.run(scenarios.arrivals, slots, 9)
    assert found == [[], *([expected(step)] for step in range(9))]


def test_what_is_read_late_is_what_one_comparison_finds(interpreted: Interpreter) -> None:
    assert interpreted.run(scenarios.statistics_are_those_of_one_comparison, 6) == 5


def test_a_slot_is_written_again_only_when_its_copy_has_ended(interpreted: Interpreter) -> None:
    turns, spared = interpreted.run(scenarios.slow_arrivals, 3, 8)
    assert [one for turn in turns for one in turn] == [expected(step) for step in range(8)]
    assert spared == [0, 1, 2, 0, 1, 2]


def test_a_host_that_is_all_slots_ahead_waits_and_loses_nothing(interpreted: Interpreter) -> None:
    turns, stalls = interpreted.run(scenarios.far_behind, 3, 5)
    assert turns == [[], [], [], [expected(0)], [expected(1)], [expected(2), expected(3), expected(4)]]
    assert stalls == 2


def test_after_a_restart_steps_count_from_zero(interpreted: Interpreter) -> None:
    assert interpreted.run(scenarios.after_a_restart) == [expected(0)]


def test_a_restart_does_not_drop_what_was_found(interpreted: Interpreter) -> None:
    with pytest.raises(RuntimeError, match=r"1 comparisons were not drained"):
        interpreted.run(scenarios.a_restart_too_early)


def test_a_turn_left_out_is_said_and_no_other_step_is_shown_for_it(interpreted: Interpreter) -> None:
    with pytest.raises(RuntimeError, match=r"slot 0 holds step 2 in place of 0"):
        interpreted.run(scenarios.a_turn_left_out)


@pytest.mark.parametrize("kind", ["shape", "dtype", "strides"])
def test_other_tensors_than_the_rings_are_refused(interpreted: Interpreter, kind: str) -> None:
    with pytest.raises(ValueError, match=r"the candidate is (float|not contiguous)"):
        interpreted.run(scenarios.of_other_tensors, kind)


def test_one_slot_is_too_few(interpreted: Interpreter) -> None:
    with pytest.raises(ValueError, match=r"at least 2"):
        interpreted.run(scenarios.too_few_slots)
