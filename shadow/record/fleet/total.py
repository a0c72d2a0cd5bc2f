"""What the replays of many records come to: the report of one, summed, whatever the order they ended in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from reports import Check, Fact, Finding, Report, Status, Table, Verdict
from shadow.record.one import TITLE, Replayed
from shadow.record.report import NO_VERDICT
from shadow.verdict import Exit

WORST_FIRST = (Exit.HARNESS, Exit.DIVERGENCE, Exit.COVERAGE, Exit.EQUAL)
KEPT = 1000
"""Findings that the report lists, at most; each record brings no more than its own report would."""
_WORD = {
    Exit.EQUAL: "equal",
    Exit.DIVERGENCE: "diverged",
    Exit.HARNESS: "without a verdict",
    Exit.COVERAGE: "short of coverage",
}
_STATUS_FIRST = (Status.FAIL, Status.ERROR, Status.SHORT, Status.PASS)


@dataclass(frozen=True)
class Row:
    """One record, without its findings. `says`: its headline."""

    name: str
    code: Exit
    says: str
    replayed: Replayed


class Total:
    """Adds up records as they end; `names` of all that are to come, in the order in which they are reported."""

    def __init__(self, names: Mapping[Path, str]) -> None:
        self._names = dict(names)
        self._order = {path: place for place, path in enumerate(names)}
        self._rows: dict[int, Row] = {}
        self._findings: list[tuple[tuple[int, int, int], Finding]] = []
        self.plans = 0
        self.lost_workers = 0
        self.first: str | None = None
        """The divergence that was found before any other, with its record."""

    def add(self, path: Path, replayed: Replayed) -> None:
        name, place, report = self._names[path], self._order[path], replayed.report
        code = Exit(report.verdict.exit_code)
        says = report.verdict.headline.removeprefix(NO_VERDICT).replace(f"{path}: ", "", 1)
        # what is shown of a record is small; its findings wait for those of the records before it
        small = replace(replayed, report=replace(report, findings=(), facts=(), tables=()))
        self._rows[place] = Row(name, code, says, small)
        self.plans += sum(replayed.plans.values())
        if code is Exit.DIVERGENCE and self.first is None:
            self.first = f"{name}: {says}"
        rank = WORST_FIRST.index(code)
        self._findings += [
            ((rank, place, number), _of_record(name, path, finding))
            for number, finding in enumerate(report.findings)
        ]
        self._findings = sorted(self._findings, key=lambda pair: pair[0])[:KEPT]

    @property
    def count(self) -> int:
        """All that are to come."""
        return len(self._names)

    @property
    def done(self) -> int:
        return len(self._rows)

    def so_far(self) -> str:
        """What was done, in a line: for a run that was interrupted."""
        counts = Counter(row.code for row in self._rows.values())
        found = ", ".join(f"{counts[code]:,} {_WORD[code]}" for code in WORST_FIRST if counts[code])
        first = f"; first found: {self.first}" if self.first else ""
        return (
            f"{self.done:,} of {len(self._names):,} records replayed, {self.plans:,} plans"
            f"{f' ({found})' if found else ''}{first}"
        )

    def report(self, facts: tuple[Fact, ...], seconds: float) -> Report:
        """Of all records; `facts` of how they were run come first."""
        rows = [self._rows[place] for place in sorted(self._rows)]
        rows.sort(key=lambda row: WORST_FIRST.index(row.code))
        code = rows[0].code if rows else Exit.COVERAGE
        if self.lost_workers:
            facts = (*facts, Fact("workers lost", f"{self.lost_workers}: their records were tried again"))
        return Report(
            title=TITLE,
            verdict=Verdict(code.status, int(code), self._headline(code, rows)),
            facts=(*facts, Fact("plans a second", f"{self.plans / max(seconds, 1e-9):,.0f}")),
            checks=(_records_check(rows), *_checks(rows)),
            findings=tuple(finding for _, finding in self._findings),
            total_findings=sum(row.replayed.report.total_findings for row in rows),
            tables=(_record_table(rows), _planner_table(rows)),
            seconds=seconds,
            sides=("recorded", "replayed"),
        )

    def _headline(self, code: Exit, rows: list[Row]) -> str:
        if not rows:
            return "Coverage short: nothing compared: there is no record"
        counts = Counter(row.code for row in rows)
        if code is Exit.EQUAL:
            events = sum(row.replayed.events for row in rows)
            of = f"{len(rows):,} record{'s' if len(rows) > 1 else ''}"
            return f"Equal: {self.plans:,} plans of {events:,} events in {of}"
        first = f"{counts[code]:,} of {len(rows):,} records {_WORD[code]}"
        first += f", the first {rows[0].name}: {rows[0].says}"
        others = [f"{counts[c]:,} {_WORD[c]}" for c in WORST_FIRST[:3] if counts[c] and c is not code]
        return "; ".join((first, *others))


def _of_record(name: str, path: Path, finding: Finding) -> Finding:
    message = finding.message.replace(f"{path}: ", "", 1)
    return replace(finding, message=message, where=(Fact("record", name), *finding.where))


def _records_check(rows: list[Row]) -> Check:
    """Whether each could be replayed at all."""
    replayed = [row for row in rows if row.code is not Exit.HARNESS]
    if not rows:
        return Check("records", Status.SHORT, 0, "there is no record")
    if len(replayed) == len(rows):
        return Check("records", Status.PASS, len(rows))
    failed = f"{len(rows) - len(replayed):,} without a verdict, the first {rows[0].name}"
    return Check("records", Status.ERROR, len(replayed), failed)


def _checks(rows: list[Row]) -> tuple[Check, ...]:
    """Those of all records by name; the detail is that of the first record with the worst status."""
    found: dict[str, list[tuple[Row, Check]]] = {}
    for row in rows:
        for check in row.replayed.report.checks:
            found.setdefault(check.name, []).append((row, check))
    return tuple(_summed(name, pairs) for name, pairs in sorted(found.items()))


def _summed(name: str, pairs: list[tuple[Row, Check]]) -> Check:
    status = min((check.status for _, check in pairs), key=_STATUS_FIRST.index)
    worst = [(row, check) for row, check in pairs if check.status is status]
    row, check = worst[0]
    detail = f"{row.name}: {check.detail}" if check.detail else ""
    if detail and len(worst) > 1:
        detail += f"; {len(worst) - 1:,} more records"
    return Check(name, status, sum(check.count for _, check in pairs), detail)


def _record_table(rows: list[Row]) -> Table:
    """All, the worst first."""
    cells = tuple(
        (
            row.name,
            _WORD[row.code],
            f"{sum(row.replayed.plans.values()):,}",
            row.says + (f"; cut off, {row.replayed.lost:,} bytes lost" if row.replayed.lost else ""),
        )
        for row in rows
    )
    return Table("Records", ("record", "verdict", "plans", "says"), cells)


def _planner_table(rows: list[Row]) -> Table:
    plans: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for name, source in row.replayed.sources.items():
            plans[name, source] += row.replayed.plans[name]
    cells = tuple((name, source, f"{count:,}") for (name, source), count in sorted(plans.items()))
    return Table("Planners", ("planner", "from", "plans"), cells)
