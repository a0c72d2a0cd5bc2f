"""How strong a count shows: a few levels, by powers of the largest one, so that 1 and 10,000 both keep a shade."""

from __future__ import annotations

LEVELS = 4


def thresholds(largest: int) -> tuple[int, ...]:
    """The smallest count of each level, ascending; at most LEVELS of them, fewer where counts are small."""
    if largest <= LEVELS:
        return tuple(range(1, largest + 1))
    return tuple(sorted({1, *(round(largest ** (i / LEVELS)) + (i == LEVELS - 1) for i in range(1, LEVELS))}))


def level(count: int, starts: tuple[int, ...]) -> int:
    """0 for none, then 1 for the first level of `starts`; a single level shows as the strongest."""
    reached = sum(count >= start for start in starts)
    return LEVELS - len(starts) + reached if reached else 0
