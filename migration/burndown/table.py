"""The history in a terminal: at most fifty rows, both ends among them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from migration.burndown.history import History
from migration.burndown.rows import ROWS, Row, thin
from migration.burndown.subject import Subject

COLUMNS = ("file", "class", "methods", "asks", "handlers", "width", "gated")


def cells(row: Row) -> tuple[str, ...]:
    """The numbers of one row in the order of `COLUMNS`; "?" where a version could not be read."""
    size, fault = row.monolith, not row.whole
    own: tuple[str, ...]
    if size is None:
        own = ("?" if fault else "-",) * 4
    else:
        own = tuple(f"{n:,}" for n in (size.lines, size.class_lines, size.methods, size.asks))
    gated = own[0] if size is None else (f"{size.gated} by {size.gates}" if size.gates else f"{size.gated}")
    mark = "?" if fault and size is not None else ""
    return (*own, f"{row.handler_lines:,}{mark}", f"{row.width:,}{mark}", gated)


def day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def notes(history: History, rows: Sequence[Row]) -> list[str]:
    """What the table does not show, and what could not be looked at."""
    said = []
    if left := len(rows) - len(thin(rows, ROWS)):
        said.append(f"{left:,} of {len(rows):,} commits between these rows are left out; --json has all")
    if faulty := [row for row in rows if not row.whole]:
        first = "; ".join(f"{row.commit.id[:7]} {row.faults[0]}" for row in faulty[:3])
        said.append(f"{len(faulty):,} of {len(rows):,} commits hold a version that does not parse: {first}")
    said += [f"{path} was called {old} before" for path, old in history.renamed]
    if history.shallow:
        said.append("the repository is shallow: what came before it is not known")
    return said


def show(subject: Subject, history: History, rows: Sequence[Row]) -> None:
    """Print the table with its notes."""
    console = Console()
    title = f"{subject.class_name} in {subject.file}, {len(rows):,} commits"
    table = Table(
        title=escape(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    shown = [(row, (row.commit.id[:7], day(row.commit.time), *cells(row))) for row in thin(rows, ROWS)]
    heads = ("commit", "date", *COLUMNS)
    widths = [max(map(len, column)) for column in zip(heads, *(texts for _, texts in shown), strict=True)]
    for number, (head, width) in enumerate(zip(heads, widths, strict=True)):
        table.add_column(head, justify="right" if number > 1 else "left", no_wrap=True, min_width=width)
    # What is left of the line is the subject's; rich would take it from the numbers.
    room = max(6, console.width - sum(widths) - len(widths) - 1)
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=room)
    for row, texts in shown:
        style = None if row.whole else "yellow"
        table.add_row(*texts, escape(row.commit.subject), style=style)
    console.print(table)
    handlers = ", ".join(subject.handlers) or "none known"
    console.print(
        f"file, class: lines; asks: hasattr and getattr on self; handlers: lines of {handlers}; width: members of "
        "their Protocols; gated: methods behind gates, by how many gates",
        highlight=False,
        markup=False,
        style="dim",
    )
    for note in notes(history, rows):
        console.print(note, highlight=False, markup=False)
