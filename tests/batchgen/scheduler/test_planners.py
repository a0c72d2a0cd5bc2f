"""The pure planners: frozen values in, plans out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchgen.scheduler.order import order_rows
from batchgen.scheduler.ports import ReadbackKind
from batchgen.scheduler.readback import ReadbackPlan, plan_readback
from batchgen.scheduler.resume_plan import (
    Reclaim,
    Refuse,
    Resume,
    ResumePlan,
    Wait,
    plan_requeue_resume,
    plan_swap_in,
)
from batchgen.scheduler.snapshots import ParkedRow, PoolRoom, ReadbackRow, RowSlots, VictimRow
from batchgen.scheduler.victims import Park, Route, choose_admission_victim, choose_decode_victim

# -- order


def test_rows_are_ordered_by_ssm_slot_and_by_kv_slot_where_there_is_none() -> None:
    rows = [RowSlots(9, 5), RowSlots(3, None), RowSlots(0, 7), RowSlots(6, None)]
    assert order_rows(rows) == (1, 0, 3, 2)


@given(st.lists(st.builds(RowSlots, st.integers(0, 5), st.none() | st.integers(0, 5)), max_size=8))
def test_the_order_is_a_stable_permutation(rows: list[RowSlots]) -> None:
    order = order_rows(rows)
    keys = [(rows[i].slot_idx if rows[i].ssm_slot is None else rows[i].ssm_slot, i) for i in order]
    assert sorted(order) == list(range(len(rows)))
    assert keys == sorted(keys, key=lambda key: (key[0] or 0, key[1]))


# -- readback

GREEDY = ReadbackRow(
    temperature=0.0,
    constrained=False,
    wants_logprobs=False,
    min_tokens=0,
    outputs=3,
    inside_thinking=False,
    think_ended=False,
    neutral=True,
    tool_call_steered=False,
)
ENDED = replace(GREEDY, think_ended=True)


def readback(*rows: ReadbackRow, fp32: bool = False, lever: bool = True, quirk: bool = False) -> ReadbackPlan:
    return plan_readback(rows, fp32, lever, quirk)


@pytest.mark.parametrize(
    "row",
    [
        replace(GREEDY, temperature=0.7),
        replace(GREEDY, constrained=True),
        replace(GREEDY, wants_logprobs=True),
        replace(GREEDY, min_tokens=4),
        replace(GREEDY, inside_thinking=True),
        replace(ENDED, neutral=False),
    ],
)
@pytest.mark.parametrize("quirk", [False, True])
def test_one_row_that_needs_the_host_sends_all_rows_there(row: ReadbackRow, quirk: bool) -> None:
    assert readback(GREEDY, row, GREEDY, quirk=quirk) == ReadbackPlan(ReadbackKind.HOST, 1)


def test_greedy_rows_are_chosen_on_the_device_unless_logits_are_float32() -> None:
    rows = (GREEDY, replace(GREEDY, min_tokens=3), ENDED)
    assert readback(*rows) == ReadbackPlan(ReadbackKind.ARGMAX)
    assert readback(*rows, fp32=True) == ReadbackPlan(ReadbackKind.HOST)
    assert readback(*rows, lever=False) == ReadbackPlan(ReadbackKind.HOST, 2)


@pytest.mark.parametrize("row", [replace(GREEDY, neutral=False), replace(GREEDY, tool_call_steered=True)])
def test_what_the_device_would_ignore_needs_the_host_but_for_the_quirk(row: ReadbackRow) -> None:
    assert readback(row).kind is ReadbackKind.HOST
    assert readback(row, quirk=True).kind is ReadbackKind.ARGMAX


# -- victims


def row(
    name: str, slot: int, outputs: int, immune: int = 0, blocks: int = 1, grammar: bool = False
) -> VictimRow:
    return VictimRow(name, slot, outputs, immune, grammar, blocks)


def test_the_row_with_the_least_generated_is_parked_and_the_lower_slot_on_a_tie() -> None:
    rows = [row("a", 4, 9, blocks=9), row("b", 7, 2), row("c", 3, 2, blocks=1), row("d", 0, 3, blocks=30)]
    assert choose_decode_victim(rows, can_spill=False) == Park(2, Route.REQUEUE)
    assert choose_decode_victim(rows, can_spill=True) == Park(2, Route.SPILL)


def test_a_row_that_came_back_is_spared_until_it_has_generated_enough() -> None:
    rows = [row("a", 0, 70), row("b", 1, 5, immune=69)]
    assert choose_decode_victim(rows, False) == Park(0, Route.REQUEUE)
    assert choose_decode_victim([rows[0], row("b", 1, 69, immune=69)], False) == Park(1, Route.REQUEUE)


def test_immunity_of_all_rows_protects_none() -> None:
    rows = [row("a", 0, 70, immune=80), row("b", 1, 5, immune=69)]
    assert choose_decode_victim(rows, False) == Park(1, Route.REQUEUE)


@pytest.mark.parametrize("can_spill", [False, True])
def test_constrained_rows_are_never_parked(can_spill: bool) -> None:
    rows = [row("a", 0, 1, grammar=True), row("b", 1, 9, immune=64), row("c", 2, 8, grammar=True)]
    found = choose_decode_victim(rows, can_spill)
    assert found is not None and found.index == 1
    assert choose_decode_victim([rows[0], rows[2]], can_spill) is None


def test_an_admission_takes_the_row_with_the_most_blocks() -> None:
    rows = [row("a", 0, 1, blocks=3), row("b", 1, 90, blocks=7), row("c", 2, 1, blocks=7)]
    assert choose_admission_victim(rows) == 1
    assert choose_admission_victim([row("a", 0, 1, blocks=9, grammar=True)]) is None


# -- resume


def requeued(
    *blocks: int, free: int, total: int = 100, rows: int = 9, growth: int = 1, dry: bool = False
) -> ResumePlan:
    parked = [ParkedRow(f"r{i}", count) for i, count in enumerate(blocks)]
    return plan_requeue_resume(PoolRoom(free, total, rows), parked, growth, dry)


def swapped(
    *blocks: int, free: int, total: int = 100, rows: int = 9, growth: int = 1, dry: bool = False
) -> ResumePlan:
    parked = [ParkedRow(f"r{i}", count) for i, count in enumerate(blocks)]
    return plan_swap_in(PoolRoom(free, total, rows), parked, growth, dry)


def test_a_requeued_row_comes_back_fewest_blocks_first_with_one_to_grow_into() -> None:
    assert requeued(5, 3, 3, 9, free=4) == Resume(1)
    assert requeued(5, 3, free=3) == Reclaim(1)
    assert requeued(5, 3, free=1, dry=True) == Wait()


def test_a_larger_requeued_row_never_overtakes_the_smallest() -> None:
    """Not even where the smallest waits: all others need as much."""
    assert requeued(3, 4, free=3, dry=True) == Wait()


def test_a_row_that_never_fits_is_refused() -> None:
    assert requeued(8, free=2, total=8) == Refuse(0, 9)
    assert swapped(2, 8, free=2, total=8) == Refuse(1, 9)
    assert requeued(7, free=2, total=8) == Reclaim(6)
    assert requeued(8, free=2, total=0) == Reclaim(7)  # total unknown


def test_spilled_rows_come_back_first_in_first_out_of_what_fits() -> None:
    assert swapped(9, 4, 2, free=5) == Resume(1)
    assert swapped(9, 4, 2, free=2) == Reclaim(1)
    assert swapped(9, 4, 2, free=2, dry=True) == Wait()


def test_without_growth_a_spilled_row_needs_only_what_it_had() -> None:
    assert swapped(4, free=4, growth=0) == Resume(0)
    assert swapped(4, free=4, growth=1) == Reclaim(1)
    assert swapped(8, free=2, total=8, growth=0) == Reclaim(6)


@pytest.mark.parametrize("plan", [requeued, swapped])
def test_nothing_comes_back_to_a_full_batch(plan: object) -> None:
    assert callable(plan)
    assert plan(1, free=9, rows=0) == Wait() and plan(200, free=9, rows=0) == Wait()
    assert plan(free=9) == Wait()
