"""From trials to a report: the kill matrix, the score, and what the detectors are worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from reports import Check, Fact, Finding, Level, Report, Status, Table
from reports import Verdict as ReportVerdict
from shadow.mutants.detectors import Detector, detectors, idle_invariants
from shadow.mutants.registry import Fault, Where
from shadow.mutants.trial import GOOD, Trial, Verdict
from shadow.verdict import Exit
from shadow.verdict import where as in_words


def exit_code(trials: Sequence[Trial], idle: Sequence[str]) -> Exit:
    if any(trial.verdict is Verdict.ERROR for trial in trials):
        return Exit.HARNESS
    if idle or any(trial.verdict not in GOOD for trial in trials):
        return Exit.DIVERGENCE
    return Exit.EQUAL if trials else Exit.COVERAGE


def build_report(trials: Sequence[Trial], *, whole: bool, seconds: float) -> Report:
    """`whole`: the catalogue ran as a whole, so that each invariant must have killed a mutant of it alone."""
    found = detectors(trials)
    idle = idle_invariants(trials) if whole else []
    code = exit_code(trials, idle)
    findings = [_finding(trial) for trial in trials if trial.verdict not in GOOD]
    findings += [_idle(name) for name in idle]
    return Report(
        title="shadow mutants",
        verdict=ReportVerdict(code.status, int(code), _headline(trials, idle)),
        facts=_facts(trials, found, whole),
        checks=tuple(_check(trial) for trial in trials),
        findings=tuple(findings),
        total_findings=len(findings),
        tables=(_matrix(trials), _worth(found)) if trials else (),
        seconds=seconds,
        sides=("declared", "found"),
    )


def _headline(trials: Sequence[Trial], idle: Sequence[str]) -> str:
    if not trials:
        return "No mutant was run"
    faults = [trial for trial in trials if trial.mutant.kind is not Fault.CONTROL]
    controls = [trial for trial in trials if trial.mutant.kind is Fault.CONTROL]
    good = sum(trial.verdict is Verdict.KILLED for trial in faults)
    silent = sum(trial.verdict is Verdict.SILENT for trial in controls)
    text = f"{good} of {len(faults)} mutants found as declared and in time"
    if controls:
        text += f"; {silent} of {len(controls)} controls silent"
    if idle:
        text += f"; {len(idle)} invariants kill no mutant alone"
    return text


def _facts(trials: Sequence[Trial], found: Sequence[Detector], whole: bool) -> tuple[Fact, ...]:
    faults = [trial for trial in trials if trial.mutant.kind is not Fault.CONTROL]
    if not faults:
        return ()
    killed = sum(trial.killed for trial in faults)
    latencies = Counter(trial.latency for trial in faults if trial.latency is not None)
    soon = ", ".join(f"{count} after {steps}" for steps, count in sorted(latencies.items()))
    alone = [trial for trial in faults if trial.alone]
    facts = [
        Fact("mutation score", f"{100 * killed / len(faults):.0f} % ({killed} of {len(faults)} killed)"),
        Fact("located as declared", f"{sum(t.killed and t.located for t in faults)} of {killed}"),
        Fact("first alarm after the fault", f"{soon} decode steps"),
        Fact("with one path only", f"invariants kill {len(alone)} of {len(faults)}"),
    ]
    redundant = [detector.name for detector in found if detector.redundant]
    if whole and redundant:
        facts.append(Fact("never sole, never first", ", ".join(redundant)))
    return tuple(facts)


def _check(trial: Trial) -> Check:
    status = Status.PASS if trial.verdict in GOOD else Status.FAIL
    if trial.verdict is Verdict.ERROR:
        status = Status.ERROR
    said = trial.verdict.value
    if trial.first is not None and trial.verdict is Verdict.KILLED:
        said += f": {trial.first.kind.value} at {in_words(trial.first)}"
    return Check(trial.mutant.name, status, len(trial.alarms), said)


def _finding(trial: Trial) -> Finding:
    mutant, first = trial.mutant, trial.first
    where = [Fact("mutant", mutant.name), Fact("workload", mutant.workload)]
    if trial.fired is not None:
        where.append(Fact("struck at step", str(trial.fired)))
    return Finding(
        code=trial.verdict.value.replace(" ", "-"),
        level=Level.ERROR,
        message=trial.detail or trial.verdict.value,
        where=tuple(where),
        expected=declared(mutant.where),
        actual=None if first is None else f"{first.kind.value} at {in_words(first)}",
        hint=mutant.report,
    )


def _idle(name: str) -> Finding:
    message = (
        f"the invariant {name} kills no mutant when there is no second path: nothing shows that it can alarm"
    )
    return Finding("idle-invariant", Level.ERROR, message, (Fact("invariant", name),))


def declared(where: Where) -> str:
    """The declared coordinates in words."""
    if where.kind is None:
        return "no alarm"
    parts = [where.kind.value, "any step" if where.step is None else f"step {where.step}"]
    if where.sequence is not None:
        parts.append(f"sequence {where.sequence}")
    if where.layer is not None:
        parts.append(f"layer {where.layer}")
    return ", ".join([*parts, f"field {where.field}"])


def _matrix(trials: Sequence[Trial]) -> Table:
    def cell(steps: dict[str, int]) -> str:
        return " ".join(f"{name}@{step}" for name, step in steps.items()) or "-"

    rows = []
    for trial in trials:
        ours = ("-" if trial.fired is None else str(trial.fired), cell(trial.alarms), cell(trial.alone))
        rows.append((trial.mutant.name, trial.mutant.kind.value, *ours, trial.verdict.value))
    columns = ("mutant", "fault", "struck", "detector@step, first first", "invariants alone", "verdict")
    return Table("Kill matrix", columns, tuple(rows))


def _worth(found: Sequence[Detector]) -> Table:
    columns = ("detector", "kills", "in the first step", "first", "sole", "alone")
    rows = (
        (
            d.name,
            *(str(n) for n in (d.kills, d.earliest, d.first, d.sole)),
            str(d.alone) if ":" in d.name else "-",
        )
        for d in found
    )
    return Table("Detectors", columns, tuple(rows))
