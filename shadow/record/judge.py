"""Comparison of two recorded values under what is left out and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from shadow.diff import Comparison, Mismatch, Nature, compare_events
from shadow.observation import Event, Key, Kind, Observed, Point
from shadow.pairing import SAME, Pairing
from shadow.record.snapshot import with_sequence

_CONTENT = frozenset((Kind.KV, Kind.HOST_KV, Kind.STATE))
Review = Callable[[Event, Event, Comparison], Comparison]
"""Drops what is within noise from what two events come to (see shadow.noise.judging)."""


@dataclass(frozen=True)
class Judge:
    """`bound`: rows of logits count as equal up to this relative L2; digests of content, which are equal bit
    for bit or not at all, are then left out. `review`: judges by measured noise instead. `pairing`: its ignored
    fields are left out."""

    bound: float | None = None
    pairing: Pairing = SAME
    review: Review | None = None

    @property
    def forgives(self) -> bool:
        """Whether values that differ may count as equal."""
        return self.bound is not None or self.review is not None

    def ignores(self, key: Key) -> bool:
        return self.pairing.ignores(key.kind, key.field) or (self.bound is not None and key.kind in _CONTENT)

    def events(self, legacy: Event, candidate: Event) -> Comparison:
        """As compare_events, of two events of one point, without what is forgiven."""
        if self.bound is not None:
            legacy, candidate = (
                replace(e, values={k: v for k, v in e.values.items() if not self.ignores(k)})
                for e in (legacy, candidate)
            )
        comparison = compare_events(legacy, candidate, self.pairing)
        if self.review is not None:
            comparison = self.review(legacy, candidate, comparison)
        counting = filter(self._counts, comparison.mismatches)
        return replace(comparison, mismatches=tuple(with_sequence(legacy, candidate, m) for m in counting))

    def _counts(self, mismatch: Mismatch) -> bool:
        score = mismatch.score
        if mismatch.nature is not Nature.NUMERIC or score is None or self.bound is None:
            return True
        return score.relative_l2 > self.bound

    def values(self, key: Key, legacy: Observed, candidate: Observed) -> tuple[int, int]:
        """(leaves compared, leaves that differ) of one pair of values, forgiven or not."""
        ours, theirs = Event(Point.END, 0, {key: legacy}), Event(Point.END, 0, {key: candidate})
        comparison = compare_events(ours, theirs, self.pairing)
        return comparison.compared.total(), len(comparison.mismatches)

    def rest(self, legacy: Event, candidate: Event) -> tuple[int, int]:
        """The same of what events hold beside their values: invariants checked, and those violated."""
        comparison = compare_events(replace(legacy, values={}), replace(candidate, values={}), self.pairing)
        return comparison.compared[Kind.INVARIANT], len(comparison.mismatches)
