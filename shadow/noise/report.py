"""The report of `shadow noise`, and what a bound adds to the report of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from reports.model import Check, Fact, Finding, Level, Report, Status, Verdict
from shadow.noise.judging import Judge
from shadow.noise.power import power_table
from shadow.noise.store import NoiseFloor
from shadow.noise.tables import blind_table, bounds_table, class_sight, said
from shadow.observation import Kind

if TYPE_CHECKING:
    from shadow.noise.measure import NotMeasured


def noise_report(output: Path, floor: NoiseFloor, failed: Sequence[NotMeasured]) -> Report:
    """What was measured and written to `output`; nothing was, where `floor` has no bounds."""
    from shadow.verdict import Exit

    findings = tuple(
        Finding("noise", Level.ERROR, f"class {one.pairing.value} was not measured: {one.reason}")
        for one in failed
    )
    checks = [
        Check(name.value, Status.PASS, sum(bound.steps for bound in floor.bounds if bound.pairing is name))
        for name in floor.classes
    ]
    checks += [Check(one.pairing.value, Status.SHORT, 0, one.reason) for one in failed]
    verdict = Verdict(Status.PASS, int(Exit.EQUAL), f"{len(floor.bounds)} bounds in {output}")
    if not floor.bounds:
        verdict = Verdict(Status.ERROR, int(Exit.HARNESS), f"No bounds: {failed[0].reason if failed else ''}")
    elif failed:
        names = ", ".join(one.pairing.value for one in failed)
        verdict = Verdict(Status.SHORT, int(Exit.COVERAGE), f"Bounds in {output}, but none for {names}")
    facts = [Fact(name.replace("_", " "), str(value)) for name, value in asdict(floor.conditions).items()]
    tables = [bounds_table(floor.bounds)] if floor.bounds else []
    if floor.power:
        tables.append(blind_table(floor.power, floor))
    return Report(
        title="shadow noise",
        verdict=verdict,
        facts=tuple(facts),
        checks=tuple(checks),
        findings=findings,
        total_findings=len(findings),
        tables=tuple(tables),
    )


def with_noise(report: Report, judge: Judge, source: str) -> Report:
    """`report` with the bound in use, what passed it, and the power statement."""
    bound = judge.floor.bound(judge.pairing, Kind.LOGITS.value)
    facts = [Fact("noise floor", f"{source}, sides differ in: {judge.pairing.value}")]
    if bound is not None:
        facts.append(Fact("bound of the logits", said(bound)))
    within = ", ".join(f"{count:,} of {kind.value}" for kind, count in judge.within.items())
    if within:
        facts.append(Fact("within noise", f"{within}; largest score {judge.largest:.3g}"))
    if judge.near_ties:
        facts.append(Fact("near ties", f"{judge.near_ties} tokens chosen otherwise within the logits' noise"))
    unjudged = ", ".join(f"{count:,} of {kind.value}" for kind, count in judge.unjudged.items())
    if unjudged:
        facts.append(Fact("differ, not judged", f"{unjudged}: A/A runs differ there too, without a score"))
    tables = report.tables
    limit = class_sight(judge.floor, judge.pairing)
    if limit is not None and judge.floor.power:
        title = f"What the logits' bound could not have seen (scores above {limit:.2g} are seen)"
        tables = (*tables[:1], power_table(judge.floor.power, limit, title), *tables[1:])
    return replace(report, facts=(*report.facts, *facts), tables=tables, verdict=_verdict(report, judge))


def _verdict(report: Report, judge: Judge) -> Verdict:
    passed = judge.within.total() + judge.near_ties
    verdict = report.verdict
    if verdict.status is not Status.PASS or not passed + judge.unjudged.total():
        return verdict
    headline = verdict.headline.replace("Equal:", "Equal within noise:", 1)
    if passed:
        headline += f"; {passed:,} differ within the bound"
    if judge.unjudged:
        headline += f"; {judge.unjudged.total():,} differ and were not judged"
    return replace(verdict, headline=headline)
