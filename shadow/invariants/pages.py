"""Who owns a page: nobody twice."""

from __future__ import annotations

from shadow.invariants.invariant import PlainInvariant
from shadow.observation import Point, Violation
from shadow.observe.probe import Subject


class NoAlias(PlainInvariant):
    """A page belongs to one sequence at most, and stands in its list once."""

    name = "no-alias"
    points = frozenset((Point.DECODE, Point.BOUNDARY, Point.END))

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        looked_at = 0
        found = []
        for pool_name, pool in subject.pools():
            owners: dict[int, str] = {}
            for index, pages in pool._sequences.items():
                label = subject.names.of_index(index)
                for page in map(int, pages):
                    looked_at += 1
                    if page in owners:
                        message = f"page {page} of pool {pool_name} is owned by {owners[page]} and by {label}"
                        found.append(Violation(self.name, message, label))
                    owners[page] = label
        return looked_at, found
