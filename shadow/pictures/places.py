"""Where differences lie: how many by kind and step, by layer and step.

Every difference is counted, so what is kept grows with steps and layers, a few bytes each, and not with findings.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from shadow.observation import Kind

if TYPE_CHECKING:
    from shadow.diff import Mismatch

RowT = TypeVar("RowT")


class Counts(Generic[RowT]):
    """Numbers by row and step; a row takes memory once it has one."""

    def __init__(self) -> None:
        self._rows: dict[RowT, array[int]] = defaultdict(lambda: array("L"))

    def add(self, row: RowT, step: int) -> None:
        numbers = self._rows[row]
        if step >= len(numbers):
            numbers.extend([0] * (step + 1 - len(numbers)))
        numbers[step] += 1

    def rows(self) -> set[RowT]:
        return set(self._rows)

    def of(self, row: RowT) -> Iterator[tuple[int, int]]:
        """(step, number) of a row, where there is one."""
        return ((step, number) for step, number in enumerate(self._rows.get(row, ())) if number)


class Places:
    def __init__(self) -> None:
        self.by_kind: Counts[Kind] = Counts()
        self.by_layer: Counts[int] = Counts()

    def add(self, mismatch: Mismatch) -> None:
        self.by_kind.add(mismatch.kind, mismatch.step)
        if mismatch.layer is not None:
            self.by_layer.add(mismatch.layer, mismatch.step)
