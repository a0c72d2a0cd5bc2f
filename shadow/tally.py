"""What a run has compared and found so far: exact counts, the first divergence, a sample of the rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from shadow.diff import Comparison, Mismatch
from shadow.observation import Kind, Point, Severity
from shadow.pictures.places import Places

KEPT = 50


@dataclass
class Tally:
    """`strict_hygiene`: findings of the lowest severity count as any other. `rank`: of several, the one that is
    compared; what is found carries it."""

    compared: Counter[Kind] = field(default_factory=Counter)
    differing: Counter[Kind] = field(default_factory=Counter)
    points: Counter[Point] = field(default_factory=Counter)
    first_of_kind: dict[Kind, Mismatch] = field(default_factory=dict)
    kept: list[Mismatch] = field(default_factory=list)
    opaque: set[str] = field(default_factory=set)
    forced_tokens: int = 0
    required: frozenset[Kind] = frozenset(Kind)
    fired: int | None = None
    checked: Counter[str] = field(default_factory=Counter)
    strict_hygiene: bool = False
    hygiene: Counter[Kind] = field(default_factory=Counter)  # differing values that nobody reads
    places: Places = field(default_factory=Places)
    rank: int | None = None

    def add(self, point: Point, comparison: Comparison) -> None:
        """One pair of events that were at the same point."""
        self.points[point] += 1
        self.compared[Kind.SCHEDULE] += 1
        self.compared.update(comparison.compared)
        self.opaque |= comparison.opaque
        for mismatch in comparison.mismatches:
            self.find(mismatch)

    def find(self, mismatch: Mismatch) -> None:
        if self.rank is not None:
            mismatch = replace(mismatch, rank=self.rank)
        self.differing[mismatch.kind] += 1
        self.places.add(mismatch)
        self.hygiene[mismatch.kind] += mismatch.severity is Severity.HYGIENE
        self.first_of_kind.setdefault(mismatch.kind, mismatch)
        if len(self.kept) >= KEPT and self.first is None and self.counts(mismatch):
            self.kept.pop()  # hygiene that came earlier makes room for the first divergence
        if len(self.kept) < KEPT:
            self.kept.append(mismatch)

    def counts(self, mismatch: Mismatch) -> bool:
        """Whether this difference makes a divergence."""
        return self.strict_hygiene or mismatch.severity is not Severity.HYGIENE

    @property
    def first(self) -> Mismatch | None:
        """The first difference that makes a divergence."""
        return next((mismatch for mismatch in self.kept if self.counts(mismatch)), None)

    @property
    def total(self) -> int:
        """How many differing values make a divergence."""
        return self.differences if self.strict_hygiene else self.differences - self.hygiene.total()

    @property
    def differences(self) -> int:
        """All differing values, those that nobody reads included."""
        return self.differing.total()

    @property
    def unseen(self) -> tuple[Kind, ...]:
        """Kinds that the workers have, and of which nothing was compared."""
        return tuple(kind for kind in Kind if kind in self.required and not self.compared[kind])
