"""Cuts a report to a size: what is left out is counted where it would have stood."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from reports.model import Check, Fact, Finding, Report, Status, Table
from reports.text import shorten, shorten_pair


@dataclass(frozen=True)
class Limits:
    """At most so many of each; `text` characters of a value, `first` characters of the first finding's."""

    text: int
    first: int
    findings: int
    rows: int
    columns: int
    tables: int
    pictures: int
    named: int  # facts, checks, coordinates of a finding


def _cut_text(value: Any, width: int) -> Any:
    if isinstance(value, str):
        return shorten(value, width)
    if isinstance(value, list | tuple):
        return [_cut_text(item, width) for item in value]
    return (
        {name: _cut_text(item, width) for name, item in value.items()} if isinstance(value, dict) else value
    )


def _texts(report: Report, width: int) -> Report:
    """Every text of the report within `width`."""
    cut: Report = msgspec.convert(_cut_text(msgspec.to_builtins(report), width), Report)
    return cut


def _finding(finding: Finding, width: int, named: int) -> Finding:
    expected, actual = finding.expected, finding.actual
    if expected is not None and actual is not None:
        expected, actual = shorten_pair(expected, actual, width)
    where = finding.where[:named]
    return replace(finding, expected=expected, actual=actual, where=where)


def _table(table: Table, limits: Limits) -> Table:
    title, columns, rows = table.title, table.columns, table.rows
    if len(columns) > limits.columns:
        title += f" ({limits.columns} of {len(columns):,} columns)"
        columns = columns[: limits.columns]
    if len(rows) > limits.rows:
        title += f" ({limits.rows} of {len(rows):,} rows)"
    return Table(title, columns, tuple(row[: limits.columns] for row in rows[: limits.rows]))


def _facts(facts: tuple[Fact, ...], limit: int) -> tuple[Fact, ...]:
    left = len(facts) - limit
    return facts if left <= 0 else (*facts[:limit], Fact("left out", f"{left:,} more"))


def _checks(checks: tuple[Check, ...], limit: int) -> tuple[Check, ...]:
    """Those that did not pass come first in line for a place; the order stays."""
    ranked = sorted(range(len(checks)), key=lambda i: checks[i].status is Status.PASS)[:limit]
    return tuple(checks[i] for i in sorted(ranked))


def within(report: Report, limits: Limits) -> Report:
    """The report cut to `limits`; `total_findings` stays exact."""
    findings = [_finding(f, limits.text, limits.named) for f in report.findings[: limits.findings]]
    tables = [_table(table, limits) for table in report.tables[: limits.tables]]
    missing = len(report.tables) - len(tables) + max(0, len(report.pictures) - limits.pictures)
    facts = _facts(report.facts, limits.named)
    if missing:
        facts += (Fact("left out", f"{missing:,} more tables and pictures"),)
    short = _texts(
        replace(
            report,
            facts=facts,
            checks=_checks(report.checks, limits.named),
            findings=tuple(findings),
            tables=tuple(tables),
            pictures=report.pictures[: limits.pictures],
        ),
        limits.text + 40,
    )
    if not report.findings:
        return short
    first = replace(
        _finding(report.findings[0], limits.first, limits.named),
        message=shorten(report.findings[0].message, limits.first),
        where=short.findings[0].where,
        code=short.findings[0].code,
        hint=None if report.findings[0].hint is None else shorten(report.findings[0].hint, limits.first),
    )
    return replace(short, findings=(first, *short.findings[1:]))
