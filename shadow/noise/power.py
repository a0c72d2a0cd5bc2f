"""What a bound could not have seen: how far known faults move a score, set against the bound in use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from reports.model import Table


@dataclass(frozen=True)
class Point:
    """`score`: the smallest among the trials at this context length, in tokens."""

    length: int
    score: float

    def __post_init__(self) -> None:
        if self.length < 1 or not 0 <= self.score < math.inf:
            raise ValueError(f"a fault at length {self.length} cannot have score {self.score}")


@dataclass(frozen=True)
class FaultScores:
    """One known fault along a ladder of lengths, ascending. `covered_by`: the check that sees it structurally."""

    fault: str
    covered_by: str
    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        lengths = [point.length for point in self.points]
        if not lengths or lengths != sorted(set(lengths)):
            raise ValueError(f"{self.fault}: lengths {lengths} are not an ascending ladder")


@dataclass(frozen=True)
class Blindness:
    """`missed_from`: from this length on every rung was missed. `last_seen`: the longest rung that was not.

    Both None never happens: with all rungs seen `missed_from` is None, with all missed `last_seen` is.
    """

    fault: str
    missed_from: int | None
    last_seen: int | None
    longest: int
    covered_by: str

    def __str__(self) -> str:
        if self.missed_from is None:
            return f"{self.fault}: seen up to {self.longest} tokens"
        if self.last_seen is None:
            return f"{self.fault}: missed at every length; seen by {self.covered_by}"
        between = f"somewhere between {self.last_seen} and {self.missed_from} tokens upward"
        return f"{self.fault}: missed from {between}; seen by {self.covered_by}"


def blindness(scores: FaultScores, limit: float) -> Blindness:
    """From which length on a bound of `limit` misses the fault: its score there is not above the limit."""
    missed_from = last_seen = None
    for point in scores.points:
        if point.score > limit:
            missed_from, last_seen = None, point.length
        elif missed_from is None:
            missed_from = point.length
    return Blindness(scores.fault, missed_from, last_seen, scores.points[-1].length, scores.covered_by)


def power_table(scores: Iterable[FaultScores], limit: float, title: str) -> Table:
    """One row a fault: its score at the ladder's ends, from where on it is missed, what sees it instead."""
    return Table(title, ("fault", "score", "numerically", "structural check"), tuple(_rows(scores, limit)))


def _rows(scores: Iterable[FaultScores], limit: float) -> Iterator[tuple[str, ...]]:
    for one in scores:
        first, last = one.points[0], one.points[-1]
        ends = f"{first.score:.1e} at {first.length}, {last.score:.1e} at {last.length}"
        seen = str(blindness(one, limit)).removeprefix(f"{one.fault}: ").partition(";")[0]
        yield one.fault, ends, seen, one.covered_by
