"""Delta debugging (Zeller and Hildebrandt, 2002): a 1-minimal sublist that still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def ddmin(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """A sublist, in order, for which `fails` holds and does not without any one of its items.

    `items` as a whole must fail. `fails` is asked at most once for each sublist.
    """
    known: dict[tuple[int, ...], bool] = {}

    def test(chosen: Sequence[int]) -> bool:
        key = tuple(chosen)
        if key not in known:
            known[key] = fails([items[index] for index in chosen])
        return known[key]

    left = list(range(len(items)))
    parts = 2
    while len(left) >= 2:
        size = -(-len(left) // parts)
        chunks = [left[start : start + size] for start in range(0, len(left), size)]
        for chunk in chunks:
            rest = [index for index in left if index not in set(chunk)]
            if len(chunks) > 2 or parts == 2:
                if test(chunk):
                    left, parts = chunk, 2
                    break
            if test(rest):
                left, parts = rest, max(2, parts - 1)
                break
        else:
            if parts >= len(left):
                break
            parts = min(len(left), 2 * parts)
    return [items[index] for index in left]


def smallest(low: int, high: int, fails: Callable[[int], bool]) -> int:
    """The smallest number from `low` to `high` that fails, if failing is monotone; else one that fails.

    `high` is known to fail and never asked.
    """
    while low < high:
        middle = (low + high) // 2
        if fails(middle):
            high = middle
        else:
            low = middle + 1
    return high
