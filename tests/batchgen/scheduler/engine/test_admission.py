"""Who may start, and who is spilled for it."""

from __future__ import annotations

import pytest

from batchgen.scheduler.engine.admission import Newcomer, Room, never_fits, plan_admission, plan_swap_out
from batchgen.scheduler.snapshots import VictimRow


def newcomers(*blocks: int) -> tuple[Newcomer, ...]:
    return tuple(Newcomer(4 * count, count) for count in blocks)


def room(blocks: int, rows: int, tokens: int, block_size: int = 4) -> Room:
    return Room(blocks, rows, tokens, block_size)


def row(blocks: int, outputs: int = 9, immune_until: int = 0, constrained: bool = False) -> VictimRow:
    return VictimRow("r", 0, outputs, immune_until, constrained, blocks)


@pytest.mark.parametrize(
    ("free", "active", "parked", "waiting", "started"),
    [
        (room(10, 4, 99), 0, 0, (2, 2, 2), 3),  # 2 + 1 to grow into, each
        (room(8, 4, 99), 0, 0, (2, 2, 2), 2),
        (room(10, 4, 99), 2, 0, (2, 2, 2), 2),  # the rows before them keep one each
        (room(10, 4, 99, 16), 4, 0, (2, 2, 2), 3),  # in larger blocks four rows keep one
        (room(10, 4, 99, 16), 5, 0, (2, 2, 2), 2),
        (room(11, 4, 99, 2), 2, 0, (2, 2, 2), 3),  # never more than one each
        (room(10, 1, 99), 0, 0, (2, 2), 1),
        (room(10, 0, 99), 0, 0, (2,), 0),
        (room(10, 4, 99), 0, 1, (2,), 0),  # whoever is parked was here first
        (room(10, 4, 99), 0, 0, (9, 1), 1),
        (room(9, 4, 99), 0, 0, (9, 1), 0),  # nobody overtakes the first
        (room(99, 4, 16), 0, 0, (2, 2, 2), 2),
        (room(99, 4, 16), 0, 0, (9, 1), 1),  # longer than a tick prefills: alone
        (room(10, 4, 99), 0, 0, (), 0),
    ],
)
def test_newcomers_start_in_their_order_as_far_as_everybody_can_grow(
    free: Room, active: int, parked: int, waiting: tuple[int, ...], started: int
) -> None:
    assert plan_admission(free, active, parked, newcomers(*waiting)) == started


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "words"),
    [
        (8, 24, None),
        (8, 25, "needs 10 pages of 4 tokens, with the one it grows into; the pool has 9"),
        (0, 5, "the prompt has no tokens"),
        (5, 0, "max_tokens is 0"),
        (60, 41, "= 101 exceeds the context of 100 tokens"),
    ],
)
def test_what_can_never_finish_is_told_why(prompt: int, max_tokens: int, words: str | None) -> None:
    why = never_fits(prompt, max_tokens, 4, 9, 100)
    assert why is None if words is None else words in (why or "")


@pytest.mark.parametrize(
    ("free", "rows", "chosen"),
    [
        (
            0,
            (row(3), row(7), row(5)),
            (1,),
        ),  # 4 + 1 of its own + 3 for the others: 7 and the one it no longer needs
        (0, (row(3), row(4), row(5)), (2, 1)),
        (3, (row(3), row(4), row(5)), (2,)),
        (5, (row(3), row(7)), ()),  # it lacks only what others may grow into
        (0, (row(1), row(1)), ()),  # not even all of them would do
        (0, (row(9, outputs=3, immune_until=64), row(8)), (1,)),
        (0, (row(9, constrained=True), row(8)), (1,)),
        (0, (row(8, outputs=3, immune_until=64),), ()),
    ],
)
def test_as_few_of_the_largest_rows_as_make_room(
    free: int, rows: tuple[VictimRow, ...], chosen: tuple[int, ...]
) -> None:
    assert plan_swap_out(room(free, 1, 99), rows, Newcomer(16, 4)) == chosen


@pytest.mark.parametrize(
    ("rows", "chosen"), [((3, 3, 3, 3, 5), (4, 0)), ((3, 3, 3, 3, 6), (4,)), ((3,) * 5 + (6,), (5, 0))]
)
def test_the_rows_that_stay_keep_what_is_reserved_for_so_many(
    rows: tuple[int, ...], chosen: tuple[int, ...]
) -> None:
    assert plan_swap_out(room(0, 1, 99, 16), tuple(map(row, rows)), Newcomer(64, 4)) == chosen


def test_no_row_is_spilled_where_no_slot_is_free() -> None:
    assert plan_swap_out(room(0, 0, 99), (row(50),), Newcomer(16, 4)) == ()
