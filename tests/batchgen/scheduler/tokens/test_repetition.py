"""Loops at the end of a list, against the definition written out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchgen.scheduler.tokens.repetition import fuzzy_length, loop_period

PERIODS = (2, 6)


def naive_loop(tokens: list[int], repeats: int) -> int | None:
    for period in range(PERIODS[0], PERIODS[1] + 1):
        copies = [tokens[len(tokens) - (k + 1) * period : len(tokens) - k * period] for k in range(repeats)]
        if period * repeats <= len(tokens) and all(copy == copies[0] for copy in copies):
            return period
    return None


def naive_fuzzy(tokens: list[int], tolerance: int) -> int | None:
    for length in range(40, 14, -1):
        if len(tokens) < max(90, 3 * length):
            continue
        a, b, c = (tokens[len(tokens) - k * length :][:length] for k in (3, 2, 1))
        allowed = max(length // tolerance, 1)
        if all(
            sum(x != y for x, y in zip(one, two, strict=True)) <= allowed for one, two in ((a, b), (b, c))
        ):
            return length
    return None


@settings(max_examples=200, deadline=None)
@given(
    head=st.lists(st.integers(0, 2), max_size=8),
    motif=st.lists(st.integers(0, 2), min_size=1, max_size=7),
    times=st.integers(1, 5),
    cut=st.integers(0, 3),
    repeats=st.integers(2, 4),
)
def test_a_loop_is_found_where_the_list_ends_in_equal_copies(
    head: list[int], motif: list[int], times: int, cut: int, repeats: int
) -> None:
    tokens = (head + motif * times)[: len(head) + len(motif) * times - cut]
    assert loop_period(tokens, PERIODS, repeats) == naive_loop(tokens, repeats)


@settings(max_examples=200, deadline=None)
@given(
    random=st.randoms(use_true_random=False),
    words=st.sampled_from([2, 9, 400]),
    length=st.integers(13, 42),
    wrong=st.integers(0, 6),
    head=st.integers(0, 50),
    tolerance=st.sampled_from([3, 12, 50]),
)
def test_near_copies_are_found_where_few_places_differ(
    random: object, words: int, length: int, wrong: int, head: int, tolerance: int
) -> None:
    draw = random.randrange  # type: ignore[attr-defined]
    motif = [draw(words) for _ in range(length)]
    tokens = [draw(words) for _ in range(head)] + motif * 3
    for _ in range(wrong):
        tokens[draw(len(tokens))] = draw(words)
    assert fuzzy_length(tokens, tolerance) == naive_fuzzy(tokens, tolerance)


@pytest.mark.parametrize(("count", "found"), [(89, None), (90, 30)])
def test_near_copies_count_from_90_tokens_on(count: int, found: int | None) -> None:
    assert fuzzy_length((list(range(30)) * 4)[-count:], 12) == found


def test_a_block_written_twice_is_no_loop() -> None:
    assert fuzzy_length(list(range(1000, 1060)) + list(range(40)) * 2, 12) is None
