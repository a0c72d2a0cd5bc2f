"""Whether the end of a token list repeats itself: exactly, or nearly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from operator import ne

FUZZY_FROM = 90
SHORTEST, LONGEST = 15, 40


def loop_period(tokens: Sequence[int], periods: tuple[int, int], repeats: int) -> int | None:
    """The shortest period, within both bounds, of which the list ends in `repeats` equal copies."""
    count = len(tokens)
    for period in range(periods[0], periods[1] + 1):
        span = period * repeats
        if span > count:
            return None
        # Copies are equal exactly where the span equals itself moved by one period; the last token settles most.
        if tokens[-1] == tokens[-1 - period] and tokens[-span:-period] == tokens[count - span + period :]:
            return period
    return None


def fuzzy_length(tokens: Sequence[int], tolerance: int) -> int | None:
    """The longest length, 15 to 40, of which the list (of 90 tokens at least) ends in three near-copies: neighbours
    differ in at most `length // tolerance` places, one at least."""
    if len(tokens) < FUZZY_FROM:
        return None
    tail = tokens[-3 * LONGEST :]
    for length, allowed in _worth_counting(tail, tolerance):
        if 3 * length > len(tail):
            continue
        third, second = tail[-length:], tail[-2 * length : -length]
        if _differ(second, third) <= allowed and _differ(tail[-3 * length : -2 * length], second) <= allowed:
            return length
    return None


def _worth_counting(tail: Sequence[int], tolerance: int) -> Iterator[tuple[int, int]]:
    """Lengths, the longest first, with what they allow. This is asked for every token: where the last `allowed + 1`
    places all differ, nothing need be counted, and that is nearly always so."""
    for allowed, shortest, longest in _by_allowance(tolerance):
        found: set[int] = set()
        for place in range(1, allowed + 2):
            token = tail[-place]
            earlier = tail[-place - longest : 1 - place - shortest]
            if token in earlier:
                found.update(longest - at for at, other in enumerate(earlier) if other == token)
        for length in sorted(found, reverse=True):
            yield length, allowed


@cache
def _by_allowance(tolerance: int) -> tuple[tuple[int, int, int], ...]:
    """(places that may differ, the shortest and the longest length that allows so many), the longest lengths first."""
    lengths = range(LONGEST, SHORTEST - 1, -1)
    groups = groupby(lengths, lambda length: max(length // tolerance, 1))
    return tuple((allowed, min(group), max(group)) for allowed, group in ((a, tuple(g)) for a, g in groups))


def _differ(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(map(ne, one, other))
