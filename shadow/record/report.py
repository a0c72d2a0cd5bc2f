"""Reports of records: what was recorded, replayed or compared, in the form that every command gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from reports import Fact, Finding, Level, Report, Status, Table, Verdict
from shadow.lockstep import Outcome
from shadow.messages import Done
from shadow.observation import Point
from shadow.record.defects import Explanation
from shadow.record.reader import Record
from shadow.tally import Tally
from shadow.verdict import Circumstances, Exit, build_report, finding_of, where

NO_VERDICT = "No verdict: "


def trouble_report(title: str, message: str, seconds: float = 0.0) -> Report:
    """No verdict: the harness could not do its work, in one line."""
    return Report(
        title=title,
        verdict=Verdict(Status.ERROR, int(Exit.HARNESS), f"{NO_VERDICT}{message}"),
        findings=(Finding("harness", Level.ERROR, message),),
        total_findings=1,
        seconds=seconds,
    )


def record_facts(record: Record, name: str = "record") -> tuple[Fact, ...]:
    """What a record says of itself, and how much of it can be read."""
    content = ", ".join(("integers", *record.header.content))
    facts = [
        Fact(name, str(record.path)),
        Fact(f"{name} holds", f"{record.event_count:,} events of {content}; the run ended: {ended(record)}"),
    ]
    if record.tail is not None:
        lost = f"{record.tail.lost:,} bytes from byte {record.tail.offset:,} on: an unfinished chunk"
        facts.append(Fact(f"{name} tail lost", lost))
    facts += [Fact(f"{name} {key}", value) for key, value in record.header.facts]
    return tuple(facts)


def ended(record: Record) -> str:
    return "not recorded (the recorder was killed)" if record.end is None else record.end.outcome


def _outcome(*records: Record) -> Outcome:
    """As if of two runs that went through, for what build_report says of them."""
    steps = [max((int(c.steps[-1]) for c in r.chunks(len(r.chunk_frames) - 1)), default=0) for r in records]
    ours, theirs = (Done(count, 0.0, 0.0, 0.0) for count in (steps[0], steps[-1]))
    return Outcome(done=(ours, theirs))


def diff_report(
    legacy: Record, candidate: Record, tally: Tally, facts: tuple[Fact, ...], seconds: float
) -> Report:
    """Of two records compared into `tally`."""
    circumstances = Circumstances(str(legacy.path), str(candidate.path), seconds=seconds)
    report = build_report(circumstances, tally, _outcome(legacy, candidate))
    described = (*record_facts(legacy, "legacy"), *record_facts(candidate, "candidate"), *facts)
    return replace(report, title="shadow diff", facts=(*described, *report.facts[2:]), tables=())


def replay_report(
    record: Record, tally: Tally, plans: Counter[str], planners: dict[str, str], seconds: float
) -> Report:
    """Of a record replayed; `planners` says of each where it comes from."""
    report = build_report(Circumstances(str(record.path), "", seconds=seconds), tally, _outcome(record))
    rows = tuple((name, source, f"{plans[name]:,}") for name, source in planners.items())
    verdict = report.verdict
    if verdict.exit_code == Exit.EQUAL:
        verdict = replace(
            verdict, headline=f"Equal: {plans.total():,} plans of {record.event_count:,} events"
        )
    return replace(
        report,
        title="shadow replay",
        verdict=verdict,
        facts=(*record_facts(record), *report.facts[2:]),
        tables=(Table("Planners", ("planner", "from", "plans"), rows),),
        sides=("recorded", "replayed"),
    )


def recorded_report(record: Record, trouble: str | None, seconds: float) -> Report:
    """Of a run just recorded, to its end or not."""
    points = Counter(chunk.point(i) for chunk in record.chunks() for i in range(len(chunk)))
    steps, size = points[Point.DECODE], record.size
    shown = ", ".join(f"{count} x {point.value}" for point, count in points.items())
    facts = (*record_facts(record), Fact("observed", shown or "nothing"), Fact("bytes", f"{size:,}"))
    if trouble is not None:
        report = trouble_report("shadow record", trouble, seconds)
        return replace(report, facts=facts)
    headline = f"Recorded {record.event_count:,} events, {steps:,} decode steps, {size:,} bytes"
    code = Exit.EQUAL if steps else Exit.COVERAGE
    return Report(
        title="shadow record",
        verdict=Verdict(Status.PASS if steps else Status.SHORT, int(code), headline),
        facts=facts,
        seconds=seconds,
    )


def defects_report(explanation: Explanation, tree: str, seconds: float) -> Report:
    """Of runs with known defects: which one explains where the run with all of them leaves the corrected one."""
    first = explanation.first
    rows = tuple(
        (
            defect.name,
            "nothing" if defect.first is None else where(defect.first),
            "yes" if defect.explains else "",
        )
        for defect in explanation.defects
    )
    table = Table("Each alone", ("known defect", "first changes", "explains it"), rows)
    facts = (Fact("tree", tree), Fact("steps compared", f"{explanation.steps:,}"))
    if first is None:
        verdict = Verdict(Status.PASS, int(Exit.EQUAL), "Equal: no known defect shows on these requests")
        if not explanation.steps:
            why = "Coverage short: no step was decoded, so nothing was compared; see what shadow record says of them"
            verdict = Verdict(Status.SHORT, int(Exit.COVERAGE), why)
        return Report(title="shadow quirks", verdict=verdict, facts=facts, tables=(table,), seconds=seconds)
    names = [defect.name for defect in explanation.defects if defect.explains]
    why = " or ".join(names) if names else "none of them alone: they act together"
    headline = f"Diverged at {where(first)}; explained by {why}"
    return Report(
        title="shadow quirks",
        verdict=Verdict(Status.FAIL, int(Exit.DIVERGENCE), headline),
        facts=facts,
        findings=(finding_of(first),),
        total_findings=1,
        tables=(table,),
        seconds=seconds,
        sides=("corrected", "with all defects"),
    )
