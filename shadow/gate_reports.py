"""What gates found in compare mode in several runs, added up from the reports that they wrote."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reports import Check, Fact, Finding, Level, Report, Status, Table
from reports import Verdict as ReportVerdict
from shadow.experiment import MethodCount, Summary, Verdict
from shadow.experiment.ledger import worst
from shadow.experiment.merging import merged

_STATUS = {
    Verdict.EQUAL: Status.PASS,
    Verdict.DIVERGED: Status.FAIL,
    Verdict.HARNESS_FAILED: Status.ERROR,
    Verdict.COVERAGE_SHORT: Status.SHORT,
}
_LISTED = 200


class GateReportError(Exception):
    """A file is no report of gates, or reports do not belong together: one line that says which, and what to do."""


def read_reports(paths: Iterable[Path]) -> dict[str, Summary]:
    """By gate, the sum of all runs whose summaries are in the files.

    Raises:
        GateReportError.
    """
    found: dict[str, list[Summary]] = {}
    for path in paths:
        summaries = list(_summaries(path))
        if not summaries:
            raise GateReportError(
                f"{path} has no summary of a gate: the run did not end, or wrote its report elsewhere "
                "(<PREFIX>_REPORT); run it again"
            )
        for summary in summaries:
            found.setdefault(summary.gate, []).append(summary)
    return {gate: _sum(summaries) for gate, summaries in sorted(found.items())}


def _summaries(path: Path) -> Iterable[Summary]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise GateReportError(f"cannot read {path}: {error}") from None
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
            if value["record"] == "summary":
                yield _summary(value, str(path))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise GateReportError(
                f"{path}:{number}: not a line of a gate's report; give files that <PREFIX>_REPORT or "
                "`batchgen run --gate-report` wrote"
            ) from None


def _summary(value: Mapping[str, Any], path: str) -> Summary:
    methods = {name: _count(fields) for name, fields in value["methods"].items()}
    skipped: Counter[str] = Counter()
    for count in methods.values():
        skipped.update(count.skipped)
    counts = methods.values()
    return Summary(
        str(value["gate"]),
        Verdict(value["verdict"]),
        sum(count.calls for count in counts),
        sum(count.compared for count in counts),
        sum(count.diverged for count in counts),
        sum(count.faults for count in counts),
        tuple(skipped.most_common()),
        tuple(sorted(methods.items())),
        path,
        tuple(value["unreached"]),
    )


def _count(fields: Mapping[str, Any]) -> MethodCount:
    known = MethodCount(**fields)
    known.skipped, known.uncounted = Counter(known.skipped), Counter(known.uncounted)
    known.unseen = tuple(known.unseen)
    return known


def _sum(summaries: Sequence[Summary]) -> Summary:
    """A method that one run never called and another compared is compared; its branches must be those of one body."""
    for name in {name for summary in summaries for name, _ in summary.methods}:
        counts = [(s, count) for s in summaries for other, count in s.methods if other == name]
        totals = {count.branches: s.report for s, count in counts if count.branches}
        if len(totals) > 1:
            (few, one), (many, other) = sorted(totals.items())[:2]
            raise GateReportError(
                f"{summaries[0].gate}: {name} has {few} branches in {one} and {many} in {other}: they are of different "
                "versions of the worker; run both again on one"
            )
    return merged(summaries)


def of_called(summary: Summary) -> Summary:
    """With the verdict that the sum of its runs comes to: each method that any run called must have been compared."""
    verdict = Verdict.EQUAL
    if not summary.compared or any(count.calls and not count.compared for _, count in summary.methods):
        verdict = Verdict.COVERAGE_SHORT
    if summary.diverged or summary.faults:
        verdict = Verdict.HARNESS_FAILED if summary.faults else Verdict.DIVERGED
    return replace(summary, verdict=verdict)


def added_up(
    gates: Mapping[str, Summary],
    *,
    require: Iterable[str] = (),
    all_branches: Iterable[str] = (),
    allow: Iterable[str] = (),
    runs: int = 1,
) -> Report:
    """The report of `shadow gates`.

    Args:
        require: gates that must be there.
        all_branches: gates, or methods as "GATE:method", each of whose branches a compared call must have taken.
        allow: methods, and branches by the names that reports give them, that need not be compared.
    """
    wanted, allowed = set(all_branches), set(allow)
    judged = [_judged(summary, wanted, allowed) for summary in gates.values()]
    absent = sorted({*require, *(name.partition(":")[0] for name in wanted)} - gates.keys())
    findings = [
        _short(gate, "", "no report has a summary of this gate", "set its _COMPARE and _REPORT")
        for gate in absent
    ]
    findings += [finding for one in judged for finding in one.findings]
    named = {name for summary in gates.values() for name in _names(summary)}
    unused = [
        _short("", name, "was to be allowed, but is compared everywhere", "leave out --allow")
        for name in sorted(allowed - named)
    ]
    findings += unused
    short = [Verdict.COVERAGE_SHORT for _ in (*absent, *unused)]
    verdict = worst([*short, *(one.verdict for one in judged)])
    checks = [Check(gate, Status.SHORT, 0, "not in any report") for gate in absent]
    compared = sum(summary.compared for summary in gates.values())
    headline = f"{verdict.words}: {compared:,} compared calls of {len(gates)} gates in {runs} reports"
    rows = tuple(row for summary in gates.values() for row in _rows(summary))
    return Report(
        "shadow gates",
        ReportVerdict(_STATUS[verdict], int(verdict), headline),
        facts=(Fact("reports", str(runs)),),
        checks=(*checks, *(one.check for one in judged)),
        findings=tuple(findings[:_LISTED]),
        total_findings=len(findings),
        tables=(Table("Compared", ("gate", "method", "calls", "compared", "values", "branches"), rows),),
    )


@dataclass(frozen=True)
class _Judged:
    """What is to be said of one gate."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    check: Check


def _judged(summary: Summary, wanted: set[str], allowed: set[str]) -> _Judged:
    gate, methods = summary.gate, _methods(summary)
    short: list[Finding] = []
    for name, count in methods.items():
        if not count.compared and name not in allowed:
            short.append(_short(gate, name, *_why(count)))
        if gate in wanted or f"{gate}:{name}" in wanted:
            short += _of_branches(gate, name, count, allowed)
    asked = [name for name in sorted(wanted) if name.partition(":")[0] == gate]
    for name in (name.partition(":")[2] for name in asked):
        if name and name not in methods:
            short.append(_short(gate, name, "no gated method has this name", ""))
    if asked and not summary.branches[1]:
        short.append(_short(gate, "", "no branches were counted", "set its _BRANCHES=1"))
    verdict = of_called(summary).verdict
    if verdict in (Verdict.EQUAL, Verdict.COVERAGE_SHORT):
        verdict = Verdict.COVERAGE_SHORT if short else Verdict.EQUAL
    bad = [_bad(gate, name, count) for name, count in methods.items() if count.diverged or count.faults]
    seen, of = summary.branches
    said = (
        f"{summary.calls} calls, {len(methods)} methods, {seen} of {of} branches, {summary.diverged} diverged"
    )
    return _Judged(verdict, (*short, *bad), Check(gate, _STATUS[verdict], summary.compared, said))


def _of_branches(gate: str, name: str, count: MethodCount, allowed: set[str]) -> list[Finding]:
    """What is missing of a method each of whose branches is wanted."""
    found = []
    if unseen := [branch for branch in count.unseen if branch not in allowed]:
        found.append(_short(gate, name, f"no compared call took {', '.join(unseen)}", "add such a run"))
    if count.compared and count.uncounted.total() >= count.compared:
        found.append(_short(gate, name, "its branches were not counted", ", ".join(count.uncounted)))
    return found


def _methods(summary: Summary) -> dict[str, MethodCount]:
    """By name, those that no run has called among them."""
    return dict(sorted({**dict.fromkeys(summary.unreached, MethodCount()), **dict(summary.methods)}.items()))


def _names(summary: Summary) -> set[str]:
    """What `allow` may name of a gate: its methods, and the branches that no compared call has taken."""
    methods = _methods(summary)
    return {*methods, *(branch for count in methods.values() for branch in count.unseen)}


def _rows(summary: Summary) -> list[tuple[str, ...]]:
    return [(summary.gate, name, *_cells(count)) for name, count in _methods(summary).items()]


def _cells(count: MethodCount) -> tuple[str, str, str, str]:
    branches = f"{count.branches_seen} of {count.branches}" if count.branches else "-"
    return f"{count.calls:,}", f"{count.compared:,}", f"{count.values:,}", branches


def _why(count: MethodCount) -> tuple[str, str]:
    if not count.calls:
        return "was never called", "add a run that calls it"
    reason = count.skipped.most_common(1)[0][0] if count.skipped else "no reason was given"
    return (
        f"none of its {count.calls} calls was compared: {reason}",
        "docs/experiment.md says what can be compared",
    )


def _short(gate: str, method: str, message: str, hint: str) -> Finding:
    where = tuple(Fact(name, value) for name, value in (("gate", gate), ("method", method)) if value)
    return Finding("not-compared", Level.WARNING, f"{method or gate}: {message}", where, hint=hint or None)


def _bad(gate: str, method: str, count: MethodCount) -> Finding:
    where = (Fact("gate", gate), Fact("method", method))
    said = f"{method}: {count.diverged} of {count.compared} compared calls diverged, {count.faults} harness faults"
    return Finding(
        "diverged", Level.ERROR, said, where, hint="the report of that run has the first of each kind"
    )
