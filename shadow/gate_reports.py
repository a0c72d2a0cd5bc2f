"""What gates found in compare mode in several runs, added up from the reports that they wrote."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reports import Check, Fact, Finding, Level, Report, Status, Table
from reports import Verdict as ReportVerdict
from shadow.experiment import MethodCount, Summary, Verdict
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
    wanted, allowed, findings, checks = set(all_branches), set(allow), [], []
    used: set[str] = set()
    rows: list[tuple[str, ...]] = []
    verdicts: list[Verdict] = []
    for gate in sorted({*require, *(name.partition(":")[0] for name in wanted)} - gates.keys()):
        findings.append(
            _short(gate, "", "no report has a summary of this gate", "set its _COMPARE and _REPORT")
        )
        checks.append(Check(gate, Status.SHORT, 0, "not in any report"))
        verdicts.append(Verdict.COVERAGE_SHORT)
    for gate, summary in gates.items():
        mine: list[Finding] = []
        methods = {**dict.fromkeys(summary.unreached, MethodCount()), **dict(summary.methods)}
        for name, count in sorted(methods.items()):
            if not count.compared and name not in allowed:
                mine.append(_short(gate, name, *_why(count)))
            used |= {name} & allowed
            unseen = [branch for branch in count.unseen if branch not in allowed]
            used |= {*count.unseen} & allowed
            every = gate in wanted or f"{gate}:{name}" in wanted
            if every and unseen:
                mine.append(
                    _short(gate, name, f"no compared call took {', '.join(unseen)}", "add such a run")
                )
            if every and count.compared and count.uncounted.total() >= count.compared:
                mine.append(_short(gate, name, "its branches were not counted", ", ".join(count.uncounted)))
            rows.append((gate, name, *_cells(count)))
        missing = {name for name in wanted if name.startswith(f"{gate}:")} - {
            f"{gate}:{name}" for name in methods
        }
        mine += [
            _short(gate, name.partition(":")[2], "no gated method has this name", "")
            for name in sorted(missing)
        ]
        if any(name.partition(":")[0] == gate for name in wanted) and not summary.branches[1]:
            mine.append(_short(gate, "", "no branches were counted", "set its _BRANCHES=1"))
        verdict = of_called(summary).verdict
        if verdict in (Verdict.EQUAL, Verdict.COVERAGE_SHORT):
            verdict = Verdict.COVERAGE_SHORT if mine else Verdict.EQUAL
        verdicts.append(verdict)
        findings += mine + [
            _bad(gate, name, count) for name, count in summary.methods if count.diverged or count.faults
        ]
        seen, of = summary.branches
        said = f"{summary.calls} calls, {len(methods)} methods, {seen} of {of} branches, {summary.diverged} diverged"
        checks.append(Check(gate, _STATUS[verdict], summary.compared, said))
    for name in sorted(allowed - used):
        findings.append(
            _short("", name, "was to be allowed, but is compared everywhere", "leave out --allow")
        )
        verdicts.append(Verdict.COVERAGE_SHORT)
    verdict = max(verdicts, key=lambda one: (Verdict.EQUAL, 3, 1, 2).index(one))
    compared = sum(summary.compared for summary in gates.values())
    headline = f"{verdict.words}: {compared:,} compared calls of {len(gates)} gates in {runs} reports"
    return Report(
        "shadow gates",
        ReportVerdict(_STATUS[verdict], int(verdict), headline),
        facts=(Fact("reports", str(runs)),),
        checks=tuple(checks),
        findings=tuple(findings[:_LISTED]),
        total_findings=len(findings),
        tables=(
            Table("Compared", ("gate", "method", "calls", "compared", "values", "branches"), tuple(rows)),
        ),
    )


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
