"""Thinking: spontaneous blocks, stray ends, budgets, fences, the loop watchdog; how it is forced to end is in
test_pipeline."""

from __future__ import annotations

import pytest

from batchgen.scheduler.sequences import Thinking, TokenIds
from batchgen.scheduler.tokens.guards import Guard
from tests.batchgen.scheduler.tokens.world import (
    EOS,
    FENCE,
    IDS,
    THINK_END,
    THINK_START,
    feed,
    heard,
    make_row,
    settings,
)


def inside(**more: object) -> Thinking:
    return Thinking(inside=True, enabled=True, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("fires", "budget"), [(0, 256), (1, 128), (3, 32), (4, 16), (9, 16)])
def test_a_spontaneous_block_has_half_the_budget_after_each_loop(fires: int, budget: int) -> None:
    row = make_row(thinking=Thinking(watchdog_fires=fires, ended=True, skip_count=7))
    feed(row, [THINK_START])
    assert (row.thinking.budget, row.thinking.ended, row.thinking.skip_count) == (budget, False, 0)


def test_a_spontaneous_block_has_a_budget_of_8_at_least() -> None:
    row = make_row(thinking=Thinking(spontaneous_budget=20, watchdog_fires=3))
    feed(row, [THINK_START])
    assert row.thinking.budget == 8


def test_a_spontaneous_block_is_kept_and_paid_for_but_not_streamed() -> None:
    row = make_row()
    feed(row, [1, THINK_START, 2, 3, THINK_END, 4])
    assert row.output_tokens == [1, 2, 3, THINK_END, 4]
    assert heard(row) == [1, 4] and row.remaining == 95


def test_the_50th_stray_end_ends_the_turn_without_costing_a_token() -> None:
    row = make_row()
    feed(row, [THINK_END] * 49)
    assert not row.finished and row.thinking.skip_count == 49
    feed(row, [THINK_END])
    assert row.finished and row.guard_stop == Guard.STRAY_THINK_ENDS
    assert (row.remaining, row.output_tokens, heard(row)) == (100, [], [])


def test_after_a_block_another_token_starts_the_count_of_stray_ends_anew() -> None:
    row = make_row(thinking=Thinking(ended=True))
    feed(row, [THINK_END] * 49 + [5])
    assert row.thinking.skip_count == 0
    without = make_row()
    feed(without, [THINK_END] * 49 + [5])
    assert without.thinking.skip_count == 49


def test_closing_resets_all_that_belongs_to_the_block() -> None:
    row = make_row(
        thinking=inside(force_end=True, deferred=9, confident_run=4, in_code_fence=True, tokens=12)
    )
    feed(row, [THINK_END])
    assert vars_of(row.thinking) == {"enabled": True, "ended": True, "just_ended": True, "tokens": 12}


def vars_of(thinking: Thinking) -> dict[str, object]:
    """What is not as in a fresh block."""
    names = Thinking.__dataclass_fields__
    return {n: getattr(thinking, n) for n in names if getattr(thinking, n) != getattr(Thinking(), n)}


def test_a_fence_that_thinking_leaves_open_is_not_open_in_the_next_block() -> None:
    row = make_row(thinking=inside())
    feed(row, [FENCE, 1, THINK_END, 2, THINK_START, 3])
    assert not row.thinking.in_code_fence
    feed(row, [FENCE])
    assert row.thinking.in_code_fence


def test_the_budget_arms_the_forced_end_once() -> None:
    row = make_row(thinking=inside(budget=3, deferred=5))
    feed(row, [1, 2])
    assert not row.thinking.force_end
    feed(row, [3])
    assert (row.thinking.force_end, row.thinking.deferred) == (True, 0)
    row.thinking.deferred = 2
    feed(row, [4])
    assert row.thinking.deferred == 2  # armed already: the deferral goes on counting


def test_without_a_budget_only_loops_arm_the_forced_end() -> None:
    row = make_row(thinking=inside(), remaining=1000)
    feed(row, [i % 27 for i in range(500)])
    assert not row.thinking.force_end


@pytest.mark.parametrize(("length", "found"), [(4, True), (4, False), (7, True), (15, False)])
def test_thinking_that_repeats_itself_is_to_be_closed(length: int, found: bool) -> None:
    """Looked for at the 48th token and every 8th, in what was written before it: three copies of a period."""
    row = make_row(thinking=inside())
    copies = list(range(100, 100 + length)) * 3
    feed(row, list(range(200, 247 - len(copies) + (not found))) + copies[not found :])
    assert not row.thinking.force_end
    feed(row, [0])
    assert (row.thinking.force_end, row.thinking.watchdog_fires) == (found, int(found))


def test_loops_in_thinking_are_looked_for_from_48_tokens_on_and_every_8th() -> None:
    row = make_row(thinking=inside())
    feed(row, [1, 2, 3, 4] * 11 + [1, 2, 3])
    assert not row.thinking.force_end
    feed(row, [4])
    assert row.thinking.force_end
    later = make_row(thinking=inside())
    feed(later, list(range(200, 240)) + [1, 2, 3, 4] * 4)  # at the 48th there are only two copies
    assert later.thinking.tokens == 56 and later.thinking.force_end
    between = make_row(thinking=inside())
    feed(between, list(range(200, 240)) + [1, 2, 3, 4] * 4, settings(think_loop_stride=100))
    assert not between.thinking.force_end


@pytest.mark.parametrize("off", ["watchdogs", "row"])
def test_the_loop_watchdog_can_be_switched_off(off: str) -> None:
    row = make_row(thinking=inside(), repetition_detection=off != "row")
    feed(row, [1, 2, 3, 4] * 16, settings(enabled=off != "watchdogs"))
    assert row.thinking.tokens == 64 and not row.thinking.force_end


def test_the_first_content_token_ends_the_moment_after_thinking() -> None:
    row = make_row(thinking=inside())
    feed(row, [THINK_END])
    assert row.thinking.just_ended
    feed(row, [1])
    assert not row.thinking.just_ended and row.thinking.ended


def test_an_eos_that_thinking_alone_holds_closes_the_block_if_the_row_honours_it() -> None:
    for honours in (True, False):
        row = make_row(thinking=inside(in_code_fence=True), honor_eos_inside_thinking=honours)
        feed(row, [EOS])
        assert (row.thinking.ended, row.thinking.force_closed, row.thinking.inside) == (
            honours,
            honours,
            not honours,
        )
        assert row.thinking.in_code_fence != honours
        assert row.remaining == 99 and row.output_tokens == [] and not row.finished


def test_an_eos_that_more_than_thinking_holds_closes_nothing() -> None:
    row = make_row(thinking=inside(), min_tokens=5)
    feed(row, [EOS])
    assert row.thinking.inside and not row.thinking.force_closed


def test_without_a_think_end_id_thinking_does_not_end() -> None:
    row = make_row(thinking=inside())
    feed(row, [THINK_END], ids=TokenIds(think_start=IDS.think_start))
    assert row.thinking.inside and row.thinking.tokens == 1
