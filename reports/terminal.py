"""The terminal renderer (rich): never more than `max_lines` lines, the most telling first.

Text is never read as markup, and codes that would drive the terminal are shown as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from reports.fallback import as_table
from reports.model import Finding, Level, Report, Status, Table
from reports.pictures import Picture
from reports.text import shorten, shorten_pair, visible

MAX_LINES = 50

_STYLE = {Status.PASS: "green", Status.FAIL: "red", Status.ERROR: "magenta", Status.SHORT: "yellow"}
_LEVEL = {Level.ERROR: "red", Level.WARNING: "yellow", Level.NOTE: "cyan"}
_VALUE = 240  # characters of a value in the first finding, a few lines


def _text(value: str, style: str = "", limit: int = _VALUE) -> Text:
    return Text(visible(shorten(value, limit)), style=style)


def _grid(rows: Sequence[tuple[str, str]], limit: int = _VALUE) -> RichTable:
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True, max_width=24)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(_text(name), _text(value, limit=limit))
    return grid


def _first(finding: Finding, title: str, sides: tuple[str, str]) -> Panel:
    rows = [(fact.name, fact.value) for fact in finding.where[:8]]
    expected, actual = finding.expected, finding.actual
    if expected is not None and actual is not None:
        expected, actual = shorten_pair(expected, actual, _VALUE)
    if expected is not None or actual is not None:
        rows += [(sides[0], str(expected)), (sides[1], str(actual))]
    parts: list[RenderableType] = [_text(finding.message, "bold"), _grid(rows)]
    if finding.hint:
        parts.append(_text(finding.hint, "italic", 400))
    return Panel(Group(*parts), title=_text(title), border_style=_LEVEL[finding.level], title_align="left")


def _headed(title: str) -> RichTable:
    return RichTable(title=_text(title, "bold"), title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)


def _table(table: Table, width: int, rows: int) -> RichTable:
    """As many columns as have room, and cells that stay a few lines high."""
    columns = min(len(table.columns), max(1, width // 10))
    limit = max(width, 3 * width // max(1, columns))
    left = [f"{rows} of {len(table.rows):,} rows"] if rows < len(table.rows) else []
    if columns < len(table.columns):
        left.append(f"{columns} of {len(table.columns):,} columns")
    out = _headed(f"{table.title} ({', '.join(left)})" if left else table.title)
    for column in table.columns[:columns]:
        out.add_column(_text(column, limit=limit), overflow="fold")
    for row in table.rows[:rows]:
        out.add_row(*(_text(cell, limit=limit) for cell in row[:columns]))
    return out


def _cut(text: str, width: int) -> Text:
    text = visible(text)
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
    out = _headed(f"Also found ({len(findings)} of {report.total_findings - 1} shown)")
    for name in rows[0]:
        out.add_column(Text(visible(name)), no_wrap=True)
    for row in rows[1:]:
        out.add_row(
            *(_cut(cell, size if size <= 10 else share) for cell, size in zip(row, natural, strict=True))
        )
    return out


@dataclass(frozen=True)
class _Part:
    """A piece of the output: draws itself with so many `rows`, and needs `least` lines to be worth showing."""

    name: str
    draw: Callable[[int], RenderableType]
    rows: int
    least: int

    def lines(self, console: Console, room: int = MAX_LINES) -> list[list[Segment]]:
        """As many rows as fit into `room` lines; without that many lines for none at all, what fits."""
        rows = min(self.rows, room)
        while True:
            lines = console.render_lines(self.draw(rows), pad=False)
            if len(lines) <= room or not rows:
                return lines[:room]
            rows = max(0, min(rows - 1, rows - (len(lines) - room)))


def _shares(wanted: Sequence[tuple[int, int]], room: int) -> list[int]:
    """For parts that are (least, whole) lines: first, in order, the least of each; then, in order, the whole."""
    shares = [0] * len(wanted)
    for index, (least, whole) in enumerate(wanted):
        shares[index] = min(least, whole) if min(least, whole) <= room else 0
        room -= shares[index]
    for index, (_, whole) in enumerate(wanted):
        more = min(room, whole - shares[index]) if shares[index] else 0
        shares[index] += more
        room -= more
    return shares


def _of_table(table: Table, width: int, least: int) -> _Part:
    return _Part(table.title, partial(_table, table, width), len(table.rows), least)


def _of_picture(picture: Picture, width: int, least: int) -> _Part:
    return _Part(picture.title, lambda rows: _table(as_table(picture, rows), width, rows), 4, least)


def _parts(report: Report, first: str, max_rows: int, width: int) -> Iterator[_Part]:
    """In the order in which they are shown."""
    style = _STYLE[report.verdict.status]
    headline = _text(report.verdict.headline, f"bold {style}", 400)
    verdict = Panel(headline, title=_text(report.title), border_style=style)
    yield _Part("the verdict", lambda _: verdict, 0, 12)
    if report.findings:
        panel = _first(report.findings[0], first, report.sides)
        yield _Part(first, lambda _: panel, 0, 14)
    if report.total_findings > 1:
        yield _Part("further findings", lambda rows: _rest(report, rows, width), max_rows, 6)
    if report.checks:
        checks = tuple((c.name, c.status.value, f"{c.count:,}", c.detail) for c in report.checks)
        yield _of_table(Table("Checked", ("kind", "status", "values", "detail"), checks), width, 14)
    for picture in report.pictures[:1]:
        yield _of_picture(picture, width, 5)
    for table in report.tables:
        yield _of_table(table, width, 6)
    if report.facts:
        facts = [(fact.name, fact.value) for fact in report.facts]
        yield _Part("circumstances", lambda rows: _grid(facts[:rows], 3 * width), len(facts), 2)
    for picture in report.pictures[1:]:
        yield _of_picture(picture, width, MAX_LINES)


def print_report(
    report: Report,
    console: Console,
    *,
    first: str = "First finding",
    max_rows: int = 8,
    max_lines: int = MAX_LINES,
) -> None:
    """Verdict, first finding (titled `first`), up to `max_rows` more, checks, pictures, tables, circumstances."""
    parts = list(_parts(report, first, max_rows, console.width))
    whole = [len(part.lines(console)) for part in parts]
    wanted = [(part.least, lines) for part, lines in zip(parts, whole, strict=True)]
    shares = _shares(wanted, max_lines - 1)
    for part, share in zip(parts, shares, strict=True):
        for line in part.lines(console, share) if share else ():
            console.print(Text.assemble(*((s.text, s.style or "") for s in line)), soft_wrap=True)
    cut = [part.name for part, share, lines in zip(parts, shares, whole, strict=True) if share < lines]
    if cut:
        console.print(_cut(f"… not whole here: {', '.join(cut)}", console.width))
