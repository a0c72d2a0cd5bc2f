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

from reports.fallback import as_table, pictures_of, prose
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
    """A piece of the output: draws itself with so many `rows`, and needs `least` lines to be worth showing.

    `rank`: who comes first where there is not room for all; the order of the output is another.
    """

    name: str
    rank: int
    draw: Callable[[int], RenderableType]
    rows: int
    least: int

    def lines(self, console: Console, room: int = MAX_LINES) -> list[list[Segment]]:
        """As many rows as fit into `room` lines; nothing where that is not even one."""
        rows = min(self.rows, room)
        while True:
            lines = console.render_lines(self.draw(rows), pad=False)
            if len(lines) <= room or not self.rows:
                return lines[:room]
            if rows <= 1:
                return []
            rows = max(1, min(rows - 1, rows * room // len(lines)))


def _shares(parts: Sequence[_Part], whole: Sequence[int], room: int) -> list[int]:
    """How many lines each part gets: by rank the least that it needs, then by rank all that it has."""
    shares = [0] * len(parts)
    ranked = sorted(range(len(parts)), key=lambda index: parts[index].rank)
    for index in ranked:
        least = min(parts[index].least, whole[index])
        shares[index] = least if least <= room else 0
        room -= shares[index]
    for index in ranked:
        more = min(room, whole[index] - shares[index]) if shares[index] else 0
        shares[index] += more
        room -= more
    return shares


def _checks(report: Report, width: int, rows: int) -> RichTable:
    """Of more than there is room for, those that did not pass come first in line."""
    ranked = sorted(range(len(report.checks)), key=lambda i: report.checks[i].status is Status.PASS)
    shown = [report.checks[i] for i in sorted(ranked[:rows])]
    left = [report.checks[i] for i in ranked[rows:]]
    green = "that pass " if all(check.status is Status.PASS for check in left) else ""
    title = f"Checked ({len(left)} {green}left out)" if left else "Checked"
    cells = tuple((c.name, c.status.value, f"{c.count:,}", c.detail) for c in shown)
    return _table(Table(title, ("kind", "status", "values", "detail"), cells), width, rows)


def _of_table(table: Table, rank: int, width: int, least: int = 6) -> _Part:
    return _Part(table.title, rank, partial(_table, table, width), len(table.rows), least)


def _of_picture(picture: Picture, rank: int, width: int, least: int) -> _Part:
    return _Part(picture.title, rank, lambda rows: _table(as_table(picture, rows), width, rows), 4, least)


def _parts(report: Report, first: str, max_rows: int, width: int) -> Iterator[_Part]:
    """In the order in which they are shown."""
    style = _STYLE[report.verdict.status]
    headline = _text(report.verdict.headline, f"bold {style}", 400)
    verdict = Panel(headline, title=_text(report.title), border_style=style)
    pictures = pictures_of(report)
    yield _Part("the verdict", 0, lambda _: verdict, 0, 12)
    if report.findings:
        panel = _first(report.findings[0], first, report.sides)
        yield _Part(first, 1, lambda _: panel, 0, 14)
        for table in prose(report):
            yield _of_table(table, 2, width, 10)
    if report.total_findings > 1:
        yield _Part("further findings", 3, lambda rows: _rest(report, rows, width), max_rows, 5)
    if report.checks:
        yield _Part("checks", 4, partial(_checks, report, width), len(report.checks), 8)
    if report.findings:
        for picture in pictures[:1]:
            yield _of_picture(picture, 5, width, 5)
    for table in report.tables:
        if table not in prose(report) or not report.findings:
            yield _of_table(table, 7, width)
    if report.facts:
        facts = [(fact.name, fact.value) for fact in report.facts]
        yield _Part("circumstances", 6, lambda rows: _grid(facts[:rows], 3 * width), len(facts), 4)
    for picture in pictures[1:] if report.findings else pictures:
        yield _of_picture(picture, 8, width, MAX_LINES)


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
    shares = _shares(parts, whole, max_lines - 1)
    cut = []
    for part, share, wanted in zip(parts, shares, whole, strict=True):
        lines = part.lines(console, share) if share else []
        for line in lines:
            console.print(Text.assemble(*((s.text, s.style or "") for s in line)), soft_wrap=True)
        if len(lines) < wanted:
            cut.append(part.name)
    if cut:
        console.print(_cut(f"… not whole here: {', '.join(cut)}", console.width))
