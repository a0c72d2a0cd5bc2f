"""One mutant put to the test: is it found, where it was declared to be, and soon enough?"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path

from shadow.diff import Mismatch
from shadow.lockstep import run_lockstep
from shadow.messages import FromSide, Setup
from shadow.mutants.detect import Alarms, Alone, run_alone
from shadow.mutants.noise import alarms_above_noise
from shadow.mutants.played import Played, run_control
from shadow.mutants.registry import Fault, Mutant, MutantError, Where
from shadow.mutants.workload import WORKLOADS
from shadow.noise.bound import Class
from shadow.pairing import PAIRINGS
from shadow.side import Lost, Side
from shadow.verdict import where as in_words

ALLOWED = {Fault.STRUCTURAL: 1, Fault.NUMERIC: 2}
"""Decode steps between the stroke of a fault and the first alarm."""


MEASURED = (Class.SPLIT.value,)
"""Pairings in which bits may differ: the bounds are measured on the same pair with other prompts."""


class Verdict(StrEnum):
    KILLED = "killed"
    SURVIVED = "survived"
    MISLOCATED = "mislocated"  # found, but the first finding is not the declared one
    LATE = "late"
    EARLY = "early"  # an alarm before the fault struck: not the fault was found
    IDLE = "did not strike"
    SILENT = "silent"  # a control without an alarm, as it must be
    FALSE_ALARM = "false alarm"
    ERROR = "error"  # the harness, or the control side, failed


GOOD = frozenset((Verdict.KILLED, Verdict.SILENT))


@dataclass(frozen=True)
class Trial:
    """`alarms`: the step of each detector's first alarm, in their order; `alone`: by invariant, one path."""

    mutant: Mutant
    verdict: Verdict
    fired: int | None = None
    first: Mismatch | None = None
    alarms: dict[str, int] = field(default_factory=dict)
    alone: dict[str, int] = field(default_factory=dict)
    checked: frozenset[str] = frozenset()  # the invariants that were looked at
    detail: str = ""

    @property
    def latency(self) -> int | None:
        return None if self.first is None or self.fired is None else self.first.step - self.fired

    @property
    def killed(self) -> bool:
        """Found at all, wherever and whenever."""
        return self.verdict in (Verdict.KILLED, Verdict.MISLOCATED, Verdict.LATE)

    @property
    def located(self) -> bool:
        return self.first is not None and misplaced(self.mutant.where, self.first) is None

    @property
    def late(self) -> bool:
        allowed = ALLOWED.get(self.mutant.kind)
        return allowed is not None and self.latency is not None and self.latency > allowed


def misplaced(declared: Where, found: Mismatch) -> str | None:
    """In which coordinate the first finding is not what was declared; None where it is all of that."""
    pairs: tuple[tuple[str, object, object, bool], ...] = (
        ("kind", declared.kind, found.kind, declared.kind is found.kind),
        ("step", declared.step, found.step, declared.step in (None, found.step)),
        ("sequence", declared.sequence, found.sequence, declared.sequence in (None, found.sequence)),
        ("layer", declared.layer, found.layer, declared.layer == found.layer),
        ("field", declared.field, found.field, fnmatchcase(found.field, declared.field)),
    )
    wrong = [f"{name} {said}, found {seen}" for name, said, seen, same in pairs if not same]
    return ", ".join(f"declared {text}" for text in wrong) or None


def judge(mutant: Mutant, alarms: Alarms, alone: Alone) -> Trial:
    """The verdict on a run that went through."""
    first = alarms.first
    trial = Trial(
        mutant, Verdict.KILLED, alarms.fired, first, dict(alarms.first_step), alone.first_step, alone.checked
    )
    if trial.fired is None:
        found = "" if first is None else f"; nevertheless {first.kind.value} differs at {in_words(first)}"
        return replace(trial, verdict=Verdict.IDLE, detail=f"fired() was never called{found}")
    if mutant.kind is Fault.CONTROL:
        if first is None and not alone.first_step:
            return replace(trial, verdict=Verdict.SILENT)
        return replace(
            trial, verdict=Verdict.FALSE_ALARM, detail=_first(first) or f"alone: {alone.first_step}"
        )
    if first is None:
        return replace(
            trial, verdict=Verdict.SURVIVED, detail=f"struck at step {trial.fired}, nothing differs"
        )
    if first.step < trial.fired:
        said = f"struck at step {trial.fired}, but before: {_first(first)}"
        return replace(trial, verdict=Verdict.EARLY, detail=said)
    wrong = misplaced(mutant.where, first)
    if wrong is not None:
        return replace(trial, verdict=Verdict.MISLOCATED, detail=f"{wrong}; first: {_first(first)}")
    if trial.late:
        said = f"struck at step {trial.fired}, found {trial.latency} steps later"
        return replace(trial, verdict=Verdict.LATE, detail=said)
    return trial


def _first(first: Mismatch | None) -> str:
    if first is None:
        return ""
    return f"{first.kind.value} at {in_words(first)}: {first.legacy} against {first.candidate}"


def prepared(mutant: Mutant, tree: str, folder: Path) -> Setup:
    """The control's setup. MutantError for a workload or pairing that does not exist."""
    for what, name, known in (
        ("workload", mutant.workload, WORKLOADS),
        ("pairing", mutant.pairing, (*PAIRINGS, *MEASURED)),
    ):
        if name not in known:
            there_are = ", ".join(known)
            raise MutantError(f"mutant {mutant.name} names the {what} {name!r}; there are {there_are}")
    workload = WORKLOADS[mutant.workload]
    return Setup(tree, workload.write(folder), 1, {**workload.options, **mutant.options})


class Bench:
    """Tries one mutant after the other on one tree; a control that several have in common runs once."""

    def __init__(self, tree: Path, timeout: float = 60.0) -> None:
        self._tree, self._timeout = str(tree), timeout
        self._controls: dict[str, list[FromSide | Lost]] = {}

    def try_mutant(self, mutant: Mutant) -> Trial:
        """Runs the pair, then the candidate alone, and judges. Failures of the harness are a verdict, too."""
        try:
            with tempfile.TemporaryDirectory(prefix="shadow-mutants-") as folder:
                return self._try(mutant, prepared(mutant, self._tree, Path(folder)))
        except (MutantError, OSError, EOFError) as error:
            return Trial(mutant, Verdict.ERROR, detail=str(error))

    def _try(self, mutant: Mutant, control: Setup) -> Trial:
        candidate = replace(control, mutant=(mutant.source, mutant.name))
        if mutant.pairing in MEASURED:
            alarms = alarms_above_noise(Class(mutant.pairing), control, candidate, self._timeout)
            return judge(mutant, alarms, Alone({}, frozenset()))
        common = repr((mutant.workload, sorted(control.options.items())))
        if common not in self._controls:
            self._controls[common] = run_control(control, self._timeout)
        alarms = Alarms()
        ours = Played("legacy side", self._controls[common])
        with Side("candidate side", candidate, self._timeout) as theirs:
            outcome = run_lockstep(ours, theirs, alarms, pairing=PAIRINGS[mutant.pairing])
        if outcome.trouble is not None:
            return Trial(mutant, Verdict.ERROR, alarms.fired, detail=outcome.trouble.message)
        alone = run_alone(candidate, self._timeout)
        if alone.trouble is not None:
            return Trial(mutant, Verdict.ERROR, alone.fired, detail=alone.trouble.message)
        return judge(mutant, alarms, alone)
