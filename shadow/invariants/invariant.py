"""What an invariant is."""

from __future__ import annotations

from typing import Protocol

from shadow.observation import Point, Violation
from shadow.observe.probe import Subject


class Invariant(Protocol):
    """Looks at the live worker at the given points; never computes what the worker computes in its way."""

    @property
    def name(self) -> str: ...

    @property
    def points(self) -> frozenset[Point]: ...

    def missing(self, subject: Subject) -> str | None:
        """Why this worker has nothing of the sort; None where it has."""

    def install(self, subject: Subject) -> None:
        """Hooks that have to be there before the run begins."""

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        """(how many things were looked at, what does not hold)."""


class PlainInvariant:
    """An invariant without hooks that every worker can be held to."""

    def missing(self, subject: Subject) -> str | None:
        return None

    def install(self, subject: Subject) -> None:
        return None
