"""Markdown for a pull-request comment: verdict first, then the first finding, then the tables."""

from __future__ import annotations

from reports.model import Finding, Report, Status, Table

_MARK = {Status.PASS: "✅", Status.FAIL: "❌", Status.ERROR: "💥", Status.SHORT: "⚠️"}


def _cell(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
    return " ".join(escaped.split())


def _table(columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> list[str]:
    lines = ["| " + " | ".join(map(_cell, columns)) + " |", "|" + " --- |" * len(columns)]
    return lines + ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]


def _finding(finding: Finding, sides: tuple[str, str]) -> list[str]:
    rows = tuple((fact.name, fact.value) for fact in finding.where)
    if finding.expected is not None or finding.actual is not None:
        rows += ((sides[0], str(finding.expected)), (sides[1], str(finding.actual)))
    lines = [f"**{_cell(finding.code)}**: {_cell(finding.message)}", ""]
    if rows:
        lines += [*_table(("where", "value"), rows), ""]
    if finding.hint:
        lines += [f"> {_cell(finding.hint)}", ""]
    return lines


def _section(table: Table) -> list[str]:
    return [f"### {_cell(table.title)}", "", *_table(table.columns, table.rows), ""]


def to_markdown(report: Report, max_findings: int = 10) -> str:
    """The whole report as text; at most `max_findings` findings are spelled out, the count is exact."""
    verdict = report.verdict
    lines = [f"## {_MARK[verdict.status]} {_cell(report.title)}: {_cell(verdict.headline)}", ""]
    for finding in report.findings[:max_findings]:
        lines += _finding(finding, report.sides)
    left = report.total_findings - min(len(report.findings), max_findings)
    if left:
        lines += [f"… and {left} more.", ""]
    if report.checks:
        rows = tuple((c.name, c.status.value, str(c.count), c.detail) for c in report.checks)
        lines += ["### Checks", "", *_table(("check", "status", "values", "detail"), rows), ""]
    for table in report.tables:
        lines += _section(table)
    if report.facts:
        rows2 = tuple((fact.name, fact.value) for fact in report.facts)
        lines += ["<details><summary>Circumstances</summary>", ""]
        lines += [*_table(("fact", "value"), rows2), "", "</details>", ""]
    return "\n".join(lines)
