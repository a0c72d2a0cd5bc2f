"""The terminal renderer (rich). Text is never read as markup, so a value that contains `[red]` stays one."""

from __future__ import annotations

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table as RichTable
from rich.text import Text

from reports.model import Finding, Level, Report, Status, Table

_STYLE = {Status.PASS: "green", Status.FAIL: "red", Status.ERROR: "magenta", Status.SHORT: "yellow"}
_LEVEL = {Level.ERROR: "red", Level.WARNING: "yellow", Level.NOTE: "cyan"}


def _grid(rows: list[tuple[str, str]]) -> RichTable:
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(Text(name), Text(value))
    return grid


def _first(finding: Finding, title: str, sides: tuple[str, str]) -> Panel:
    rows = [(fact.name, fact.value) for fact in finding.where]
    if finding.expected is not None or finding.actual is not None:
        rows += [(sides[0], str(finding.expected)), (sides[1], str(finding.actual))]
    parts: list[RenderableType] = [Text(finding.message, style="bold"), _grid(rows)]
    if finding.hint:
        parts.append(Text(finding.hint, style="italic"))
    return Panel(Group(*parts), title=Text(title), border_style=_LEVEL[finding.level], title_align="left")


def _table(table: Table) -> RichTable:
    out = RichTable(title=Text(table.title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD)
    for column in table.columns:
        out.add_column(Text(column), overflow="fold")
    for row in table.rows:
        out.add_row(*map(Text, row))
    return out


def _cut(text: str, width: int) -> Text:
    return Text(text if len(text) <= width else text[: width - 1] + "…")


def _rest(report: Report, max_rows: int, width: int) -> RichTable:
    """One line per further finding: its coordinates as columns, the wide ones cut to share the width."""
    findings = report.findings[1 : 1 + max_rows]
    names = list(dict.fromkeys(fact.name for finding in findings for fact in finding.where))
    rows = [("what", *names, *report.sides)]
    for finding in findings:
        where = {fact.name: fact.value for fact in finding.where}
        values = (finding.expected or "", finding.actual or "")
        rows.append((finding.code, *(where.get(name, "") for name in names), *values))
    natural = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = width - 3 * len(natural) - sum(size for size in natural if size <= 10)
    share = max(8, room // max(1, sum(size > 10 for size in natural)))
    title = f"Also found ({len(findings)} of {report.total_findings - 1} shown)"
    out = RichTable(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD)
    for name in rows[0]:
        out.add_column(Text(name), no_wrap=True)
    for row in rows[1:]:
        out.add_row(
            *(_cut(cell, size if size <= 10 else share) for cell, size in zip(row, natural, strict=True))
        )
    return out


def print_report(
    report: Report, console: Console, *, first: str = "First finding", max_rows: int = 8
) -> None:
    """Verdict, first finding (titled `first`), up to `max_rows` more, checks, tables, circumstances."""
    style = _STYLE[report.verdict.status]
    headline = Text(report.verdict.headline, style=f"bold {style}")
    console.print(Panel(headline, title=Text(report.title), border_style=style))
    if report.findings:
        console.print(_first(report.findings[0], first, report.sides))
    if report.total_findings > 1:
        console.print(_rest(report, max_rows, console.width))
    if report.checks:
        rows = tuple((c.name, c.status.value, f"{c.count:,}", c.detail) for c in report.checks)
        console.print(_table(Table("Checked", ("kind", "status", "values", "detail"), rows)))
    for table in report.tables:
        console.print(_table(table))
    if report.facts:
        console.print(_grid([(fact.name, fact.value) for fact in report.facts]))
