"""Markdown for a pull-request comment: verdict first, then the first finding, then the tables."""

from __future__ import annotations

import re

from reports.fallback import as_table, pictures_of, prose
from reports.model import Finding, Report, Status, Table
from reports.text import shorten, visible

_MARK = {Status.PASS: "✅", Status.FAIL: "❌", Status.ERROR: "💥", Status.SHORT: "⚠️"}

MAX_CHARACTERS = 60_000
"""What a comment may hold, with some room for whoever puts a line above it."""

# Would become a cell border, a code span, emphasis, a link or an image.
_SPECIAL = re.compile(r"[\\|`*\[\]~]")
_ROWS, _FOLDED, _WIDTH = 50, 12, 300


def _cell(text: str, width: int = _WIDTH) -> str:
    escaped = _SPECIAL.sub(r"\\\g<0>", visible(shorten(text, width)))
    return " ".join(escaped.replace("&", "&amp;").replace("<", "&lt;").split())


def _table(columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> list[str]:
    lines = ["| " + " | ".join(map(_cell, columns)) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows[:_ROWS]]
    return lines if len(rows) <= _ROWS else [*lines, "", f"… and {len(rows) - _ROWS:,} more rows."]


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
    """A long one is folded."""
    lines = _table(table.columns, table.rows)
    if len(table.rows) <= _FOLDED:
        return [f"### {_cell(table.title)}", "", *lines, ""]
    summary = f"<details><summary>{_cell(table.title)} ({len(table.rows):,} rows)</summary>"
    return [summary, "", *lines, "", "</details>", ""]


def _bounded(lines: list[str]) -> str:
    """As many lines as a comment has room for."""
    size = 0
    kept: list[str] = []
    for line in lines:
        size += len(line) + 1
        if size > MAX_CHARACTERS:
            return "\n".join([*kept, "", "… the rest does not fit into a comment.", ""])
        kept.append(line)
    return "\n".join(kept)


def to_markdown(report: Report, max_findings: int = 10) -> str:
    """The report as a comment can hold it; at most `max_findings` findings are spelled out, the count is exact."""
    verdict = report.verdict
    lines = [f"## {_MARK[verdict.status]} {_cell(report.title)}: {_cell(verdict.headline)}", ""]
    for finding in report.findings[:max_findings]:
        lines += _finding(finding, report.sides)
    for table in prose(report):
        lines += [
            f"### {_cell(table.title)}",
            "",
            *(f"- {_cell(row[0], 2000)}" for row in table.rows[:_ROWS]),
            "",
        ]
    left = report.total_findings - min(len(report.findings), max_findings)
    if left:
        lines += [f"… and {left} more.", ""]
    if report.checks:
        rows = tuple((c.name, c.status.value, str(c.count), c.detail) for c in report.checks)
        lines += ["### Checks", "", *_table(("check", "status", "values", "detail"), rows), ""]
    numbers = (table for table in report.tables if len(table.columns) > 1)
    for table in (*map(as_table, pictures_of(report)), *numbers):
        lines += _section(table)
    if report.facts:
        rows2 = tuple((fact.name, fact.value) for fact in report.facts)
        lines += ["<details><summary>Circumstances</summary>", ""]
        lines += [*_table(("fact", "value"), rows2), "", "</details>", ""]
    return _bounded(lines)
