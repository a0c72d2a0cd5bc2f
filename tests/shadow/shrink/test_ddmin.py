"""Delta debugging: what is left fails, and does not without any one of its items."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shadow.shrink.ddmin import ddmin, smallest

ITEMS = st.lists(st.integers(0, 30), min_size=1, max_size=40, unique=True)


@given(st.data(), ITEMS)
def test_the_result_fails_and_is_minimal_whatever_the_fault_needs(
    data: st.DataObject, items: list[int]
) -> None:
    groups = data.draw(st.lists(st.sets(st.sampled_from(items), min_size=1), min_size=1, max_size=3))
    asked: list[tuple[int, ...]] = []

    def fails(chosen: list[int]) -> bool:
        asked.append(tuple(chosen))
        return any(group <= set(chosen) for group in groups)

    left = ddmin(items, fails)
    assert fails(left)
    assert left == [item for item in items if item in left], "in the order given"
    asked_before = asked[:-1]
    assert len(set(asked_before)) == len(asked_before), "asked at most once for each sublist"
    if len(left) > 1:
        assert not any(fails([item for item in left if item != gone]) for gone in left)


@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_the_smallest_number_that_fails_is_found(threshold: int, more: int) -> None:
    assert smallest(1, threshold + more, lambda n: n >= threshold) == threshold


@given(st.sets(st.integers(1, 100)), st.integers(1, 100))
def test_where_failing_is_not_monotone_the_result_fails_all_the_same(bad: set[int], high: int) -> None:
    assert smallest(1, high, lambda n: n in bad) in bad | {high}
