"""What the trials say about the detectors: which are needed, and which never are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from shadow.mutants.registry import Fault
from shadow.mutants.trial import Trial

INVARIANT = "invariant:"


@dataclass(frozen=True)
class Detector:
    """`kills`: mutants it alarms on. `earliest`: of them, those that nothing sees in an earlier step; `sole`: those
    that nothing else sees; `first`: those whose finding it leads. `alone`: with one path only (an invariant).
    """

    name: str
    kills: int
    earliest: int
    sole: int
    first: int
    alone: int = 0

    @property
    def redundant(self) -> bool:
        """Nothing would be found later without it."""
        return not (self.sole or self.first)


def detectors(trials: Sequence[Trial]) -> list[Detector]:
    """What each detector is worth on these mutants, the most useful first; controls do not count."""
    kills, earliest, sole = Counter[str](), Counter[str](), Counter[str]()
    first, alone = Counter[str](), Counter[str]()
    names: set[str] = set()
    for trial in trials:
        names |= {INVARIANT + name for name in trial.checked}
        if trial.mutant.kind is Fault.CONTROL:
            continue
        kills.update(trial.alarms.keys())
        soonest = min(trial.alarms.values(), default=None)
        earliest.update(name for name, step in trial.alarms.items() if step == soonest)
        first.update(list(trial.alarms)[:1])
        if len(trial.alarms) == 1:
            sole.update(trial.alarms.keys())
        alone.update(INVARIANT + name for name in trial.alone)
    ordered = sorted(names | kills.keys() | alone.keys(), key=lambda name: (-kills[name], name))
    return [Detector(n, kills[n], earliest[n], sole[n], first[n], alone[n]) for n in ordered]


def idle_invariants(trials: Sequence[Trial]) -> list[str]:
    """Invariants that were looked at and kill no mutant when there is no second path."""
    return sorted(
        found.name.removeprefix(INVARIANT)
        for found in detectors(trials)
        if found.name.startswith(INVARIANT) and not found.alone
    )
