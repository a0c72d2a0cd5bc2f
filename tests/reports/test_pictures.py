"""Pictures: what their constructors refuse, and that binning keeps every count."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.binning import axis, heat_map, neighbours, page_map, series, side_by_side
from reports.levels import LEVELS, level, thresholds
from reports.pictures import (
    FREE,
    MAX_CELLS,
    MAX_COLUMNS,
    MAX_OWNERS,
    MAX_ROWS,
    MIXED,
    SHARED,
    Axis,
    Band,
    Bar,
    Bars,
    Frame,
    HeatMap,
    Line,
    PageMap,
    Pair,
    Series,
    SideBySide,
    Span,
)

TWO, ONE = Axis("x", ("0", "1"), 2), Axis("y", ("0",), 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Axis("x", ("0",), 2),
        lambda: Axis("x", ("0",), 1, per_bin=0),
        lambda: HeatMap("t", "v", TWO, ONE, ((1,),)),
        lambda: HeatMap("t", "v", ONE, TWO, ((1, -1),)),
        lambda: HeatMap("t", "v", ONE, TWO, ((1, 2),), marked=(0, 2)),
        lambda: HeatMap("t", "v", Axis("y", ("",) * 97, 97), ONE, ((1,),) * 97),
        lambda: Span(1.0, math.inf, 2),
        lambda: Span(None, None, 2, infinite=1),
        lambda: Span(0.0, 1.0, 2, infinite=2),
        lambda: Band("b", 1.0, 0.0),
        lambda: Series("t", TWO, "y", (Line("a", ()),)),
        lambda: Series("t", TWO, "y", (), marked=2),
        lambda: PageMap("t", 2, 1, (), (Frame("f", (FREE,), (), 2),)),
        lambda: PageMap("t", 2, 1, (), (Frame("f", (0, FREE), (), 2),)),
        lambda: PageMap("t", 2, 1, (), (), marked=2),
        lambda: PageMap("t", 2, 1, (), (), marked=2, first=3),
        lambda: PageMap("t", MAX_CELLS + 1, 1, (), ()),
        lambda: SideBySide("t", ("a", "b"), (Pair("f", "1", "2", True),), 1, 0),
        lambda: Bars("t", "s", ("a",), (Bar("r", (1.0, 2.0)),)),
        lambda: Bars("t", "s", ("a",), (Bar("r", (-1.0,)),)),
    ],
)
def test_what_no_renderer_could_draw_cannot_be_made(make: object) -> None:
    with pytest.raises(ValueError):
        make()  # type: ignore[operator]


@given(
    st.integers(1, 300),
    st.integers(1, 2000),
    st.dictionaries(st.tuples(st.integers(0, 299), st.integers(0, 1999)), st.integers(1, 10**6), max_size=30),
)
@settings(max_examples=60, deadline=None)
def test_a_heat_map_of_any_size_keeps_every_count(
    rows: int, columns: int, cells: dict[tuple[int, int], int]
) -> None:
    inside = {(r, c): count for (r, c), count in cells.items() if r < rows and c < columns}
    picture = heat_map("t", "v", ("layer", rows), ("step", columns), inside)
    assert len(picture.rows.labels) <= MAX_ROWS and len(picture.columns.labels) <= MAX_COLUMNS
    assert sum(count or 0 for line in picture.cells for count in line) == sum(inside.values())
    for (row, column), count in inside.items():
        cell = picture.cells[row // picture.rows.per_bin][column // picture.columns.per_bin]
        assert cell is not None and cell >= count


def test_counts_of_one_bin_add_up() -> None:
    picture = heat_map("t", "v", ("y", 1), ("x", 200), [((0, 0), 2), ((0, 2), 3), ((0, 2), 1), ((0, 3), 9)])
    assert picture.columns.per_bin == 3 and picture.cells[0][:2] == (6, 9)


def test_a_cell_that_was_not_looked_at_is_not_equal() -> None:
    picture = heat_map("t", "v", ("y", ["a", "b"]), ("x", 2), {(1, 1): 4}, compared=[(0, 0)])
    assert picture.cells == ((0, None), (None, 4))


def test_bins_are_named_by_what_they_hold_and_the_exact_place_is_kept() -> None:
    assert axis("x", 10, 4).labels == ("0–2", "3–5", "6–8", "9")
    assert axis("x", 3, 4, first=5).labels == ("5", "6", "7")
    picture = heat_map("t", "v", ("layer", 2), ("step", 1000), {(1, 700): 1}, marked=(1, 700), note="first")
    assert picture.marked == (1, 63) and picture.columns.labels[63] == "693–703"
    assert picture.note == "first (at step 700, layer 1)"


def test_a_series_keeps_highest_and_lowest_and_counts_what_is_not_finite() -> None:
    picture = series("t", "step", "y", {"a": [1.0, math.inf, 3.0, None] * 100, "b": [2.0]}, marked=399)
    assert len(picture.x.labels) == 80 and picture.x.per_bin == 5 and picture.marked == 79
    long, short = picture.lines
    assert all((span.low, span.high) == (1.0, 3.0) for span in long.spans)
    assert sum(span.count for span in long.spans) == 300 and sum(span.infinite for span in long.spans) == 100
    assert short.spans[0] == Span(2.0, 2.0, 1) and short.spans[1] == Span(None, None, 0)


def test_a_number_too_large_for_any_axis_counts_as_infinite() -> None:
    (line,) = series("t", "step", "y", {"a": [1e308, math.nan, 1.0]}).lines
    assert [span.infinite for span in line.spans] == [1, 1, 0]


def test_pages_show_owners_and_the_one_owned_twice() -> None:
    owned = {0: ("a",), 1: ("b", "a"), 3: ("b",), 4: (), 5: ("a", "a")}
    picture = page_map("t", 6, {"now": owned, "later": {}}, marked=1)
    now, later = picture.frames
    assert picture.owners == ("a", "b")
    assert now.cells == (0, SHARED, FREE, 1, FREE, 0)
    assert (now.counts, now.free, now.shared) == ((3, 2), 2, 1)
    assert (later.counts, later.free, later.shared) == ((0, 0), 6, 0)


def test_a_large_pool_is_binned_with_exact_counts_and_keeps_the_owner_of_the_marked_page() -> None:
    pages = 100_000
    owned = {page: (f"s{page // 20}",) for page in range(pages) if page % 5}
    owned[77_777] = ("small", "s3888")
    picture = page_map("t", pages, {"now": owned}, marked=77_777)
    (frame,) = picture.frames
    assert len(frame.cells) == 1021 and picture.per_cell == 98
    assert frame.cells[77_777 // 98] == SHARED and MIXED in frame.cells
    assert len(picture.owners) == MAX_OWNERS and {"small", "s3888"} <= set(picture.owners)
    assert picture.owners[-1] == "4,989 others"
    assert sum(frame.counts) == 80_001 and frame.free == 20_000 and frame.shared == 1


def test_around_a_page_every_page_has_its_own_cell() -> None:
    window = neighbours(77_777, 100_000)
    picture = page_map("t", window, {"now": {1: ("far",), 77_777: ("a",)}}, marked=77_777)
    assert 77_777 in window and len(window) == 256 and picture.per_cell == 1
    assert picture.owners == ("a",) and picture.frames[0].cells[77_777 - picture.first] == 0
    assert neighbours(3, 100) == range(100) and neighbours(99_999, 100_000).stop == 100_000


def test_a_page_outside_the_pool_is_refused() -> None:
    with pytest.raises(ValueError, match="page 7 is not one of 0 to 5"):
        page_map("t", 6, {"now": {7: ("a",)}})


def test_side_by_side_keeps_what_differs_and_shows_where_long_values_part() -> None:
    same = [(f"same[{i}]", "1", "1") for i in range(500)]
    picture = side_by_side("t", ("a", "b"), [*same, ("x", "l" * 9000 + "1", "l" * 9000 + "2")], width=100)
    assert (picture.total, picture.differing, len(picture.rows)) == (501, 1, 200)
    last = picture.rows[-1]
    assert last.path == "x" and last.left != last.right
    assert last.left is not None and "1 (9,001 characters)" in last.left and len(last.left) < 130


@given(st.integers(1, 10**12))
@settings(max_examples=60, deadline=None)
def test_levels_grow_with_the_count_and_the_largest_is_the_strongest(largest: int) -> None:
    starts = thresholds(largest)
    assert starts[0] == 1 and list(starts) == sorted(set(starts)) and len(starts) <= LEVELS
    assert level(0, starts) == 0 and level(largest, starts) == LEVELS and level(1, starts) >= 1
    assert thresholds(0) == ()
