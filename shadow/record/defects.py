"""Which known defect of the step policy explains a difference: each is switched on alone, and the runs are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from shadow.diff import Mismatch
from shadow.observation import Point
from shadow.record.diff import first_divergence, judge_of
from shadow.record.format import RecordError
from shadow.record.reader import Record
from shadow.record.source_tree import import_from

RecordRun = Callable[[tuple[str, ...]], Record]
"""Records a run with these defects switched on. RecordError where it fails."""


@dataclass(frozen=True)
class Defect:
    """What a defect does alone: `first` is where it first shows in what the steps do, None: nowhere.

    `explains`: that is where the run with all defects first differs, and in the same way.
    """

    name: str
    first: Mismatch | None
    explains: bool


@dataclass(frozen=True)
class Explanation:
    """`first`: where the run with all defects leaves the corrected one, which has so many `steps`."""

    first: Mismatch | None
    steps: int
    defects: tuple[Defect, ...]


def known_defects(tree: Path) -> tuple[str, ...]:
    """The switches that the tree's `Quirks.faithful()` has on, in order."""
    module = import_from(tree, "batchgen.scheduler.quirks")
    faithful = module.Quirks.faithful()
    return tuple(name for name in faithful.__dataclass_fields__ if getattr(faithful, name))


def explain(names: Iterable[str], record: RecordRun) -> Explanation:
    """One run without defects, one with all, one with each. RecordError where a run fails."""
    names = tuple(names)
    if not names:
        raise RecordError("the tree knows no defects of its step policy")
    corrected = record(())

    def first(on: tuple[str, ...]) -> Mismatch | None:
        other = record(on)
        return first_divergence(corrected, other, judge_of(corrected, other))

    everything = first(names)
    alone = {name: first((name,)) for name in names}
    return Explanation(
        everything,
        sum(chunk.point(i) is Point.DECODE for chunk in corrected.chunks() for i in range(len(chunk))),
        tuple(Defect(name, at, at is not None and at == everything) for name, at in alone.items()),
    )
