"""The tables of `migrate inventory`. Readable from 80 columns on."""

from __future__ import annotations

import textwrap
from collections import Counter

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from migration.render_method import method_notes
from migration.survey.coupling import Coupling, Pair
from migration.survey.reports import Inventory, MethodReport, SectionReport

#: More pairs than these are in the JSON only.
STRONGEST = 15
_NOTE = " " * 8


def overview(found: Inventory, console: Console) -> None:
    """Everything about the class: sections, coupling, methods, and what is worth knowing in sum."""
    _head(found, console)
    _sections(found, console)
    _coupling(found.coupling, console)
    _methods(found.methods, console)
    _sums(found, console)


def one_section(found: Inventory, console: Console) -> None:
    """A selection of `select_section`: its methods, its attributes and who shares them, ways in and out."""
    _head(found, console)
    _sections(found, console)
    _methods(found.methods, console)
    names = {method.name for method in found.methods}
    table = _table("Attributes")
    for title in ("attribute", "made"):
        table.add_column(title, overflow="fold")
    for title in ("read here", "elsewhere", "written here", "elsewhere"):
        table.add_column(title, justify="right")
    for one in found.attributes:
        counts = [_split(one.readers, names), _split(one.writers, names)]
        table.add_row(one.name, one.made, *(str(count or "") for pair in counts for count in pair))
    console.print(table)
    _pairs(found.coupling.pairs, console, "Ways in and out")


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False)


def _table(title: str, *, header: bool = True) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=header, pad_edge=False)


def _split(users: tuple[str, ...], here: set[str]) -> tuple[int, int]:
    inside = sum(user in here for user in users)
    return inside, len(users) - inside


def _head(found: Inventory, console: Console) -> None:
    lines = found.last_line - found.first_line + 1
    bases = f"({', '.join(found.bases)})" if found.bases else ""
    others = f" (also here: {', '.join(found.other_classes)})" if found.other_classes else ""
    layout = found.layout
    mixed = f", {layout.mixed_lines} lines begin with tabs and spaces" if layout.mixed_lines else ""
    _say(
        console,
        f"[bold]{found.class_name}[/]{escape(bases)} in {escape(found.path)}: {lines} lines{escape(others)}",
    )
    _say(console, f"indented with {layout.indentation}{mixed}; line ends {layout.line_end}")


def _sections(found: Inventory, console: Console) -> None:
    table = _table("Sections")
    table.add_column("section", overflow="fold")
    for name in ("lines", "methods", "in methods"):
        table.add_column(name, justify="right", no_wrap=True)
    for section in found.sections:
        span = f"{section.first_line}-{section.last_line}"
        table.add_row(_title(section), span, str(section.methods), str(section.method_lines))
    console.print(table)
    total = sum(section.method_lines for section in found.sections)
    loose = sum(section.method_lines for section in found.sections if section.title is None)
    if 0 < loose < total:
        _say(console, f"{loose * 100 // total} % of the lines of methods stand under no banner")


def _title(section: SectionReport) -> str:
    return escape(section.label) if section.title else f"[dim]{escape(section.label)}[/]"


def _coupling(found: Coupling, console: Console) -> None:
    kind = "sections" if found.basis == "banners" else "clusters of methods by common attributes"
    if len(found.groups) < 2:
        return
    if found.basis == "clusters":
        table = _table("Clusters")
        table.add_column("cluster", overflow="fold")
        for title in ("methods", "lines", "attributes of its own"):
            table.add_column(title, justify="right")
        for group in found.groups:
            table.add_row(
                escape(group.label), str(len(group.methods)), str(group.lines), str(len(group.private))
            )
        console.print(table)
    matrix = _matrix(found, kind)
    if console.measure(matrix, options=console.options.update(width=10_000)).maximum <= console.width:
        console.print(matrix)
        _say(console, "row calls column / attributes shared / written by row and read by column")
    else:
        _pairs(found.pairs, console, f"Coupling between {kind}, strongest first")


def _matrix(found: Coupling, kind: str) -> Table:
    table = _table(f"Coupling between {kind}")
    table.add_column("", no_wrap=True)
    for index, _ in enumerate(found.groups, 1):
        table.add_column(str(index), justify="right", no_wrap=True)
    for index, row in enumerate(found.groups, 1):
        cells = []
        for column in found.groups:
            pair = found.pair(row.label, column.label)
            cells.append(f"{pair.calls}/{len(pair.shared)}/{len(pair.written_for)}" if pair else "")
        cells[index - 1] = "-"
        table.add_row(f"{index} {escape(row.label[:40])}", *cells)
    return table


def _pairs(pairs: tuple[Pair, ...], console: Console, title: str) -> None:
    table = _table(title)
    table.add_column("from", overflow="fold", ratio=2)
    table.add_column("to", overflow="fold", ratio=2)
    for name in ("calls", "shared", "written for"):
        table.add_column(name, justify="right")
    for pair in pairs[:STRONGEST]:
        counts = (pair.calls, len(pair.shared), len(pair.written_for))
        table.add_row(escape(pair.source), escape(pair.target), *(str(count or "") for count in counts))
    console.print(table)
    if len(pairs) > STRONGEST:
        _say(console, f"and {len(pairs) - STRONGEST} weaker pairs (--json has all of them)")


def _methods(methods: tuple[MethodReport, ...], console: Console) -> None:
    lines = ["Methods", "", "[bold] line length reads writes calls method[/]"]
    group = ""
    for method in methods:
        if method.group != group:
            group = method.group
            lines += ["", f"[bold]{escape(group)}[/]"]
        counts = (len(method.reads), len(method.writes), len(method.calls))
        reads, writes, calls = (str(count or "") for count in counts)
        lines.append(
            f"{method.first_line:5} {method.lines:6} {reads:>5} {writes:>6} {calls:>5} {escape(method.name)}"
        )
        notes = "; ".join(method_notes(method))
        lines += [f"[dim]{escape(text)}[/]" for text in _wrapped(notes, console.width)]
    _say(console, "\n".join(lines))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        max(width, 40) - 1,
        initial_indent=_NOTE,
        subsequent_indent=_NOTE,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _sums(found: Inventory, console: Console) -> None:
    made = Counter(one.made for one in found.attributes)
    _say(
        console,
        f"{len(found.methods)} methods, {len(found.attributes)} attributes, "
        f"{made['lazily']} created outside __init__, {len(found.duplicates)} defined more than once",
    )
    for title, names in (
        ("created outside __init__", found.lazy_attributes),
        ("created by __init__ on some ways only", _made(found, "init, some ways")),
        ("never assigned in the class", _made(found, "elsewhere")),
        ("deleted", tuple(one.name for one in found.attributes if one.deleters)),
        ("defined more than once", found.duplicates),
        (
            "hard to tell apart",
            tuple(f"{one.first} and {one.second} ({one.difference})" for one in found.near_duplicates),
        ),
        ("module globals that functions rebind", found.module.rebound_globals),
        (
            "environment read at import",
            tuple(f"{use.variable}:{use.line}" for use in found.module.environment),
        ),
        ("imports after code, line", tuple(map(str, found.module.imports_after_code))),
    ):
        if names:
            _say(console, f"{title}: {escape(', '.join(names))}")
    _say(console, escape("; ".join(f"{count} {what}" for what, count in _counts(found).items() if count)))


def _made(found: Inventory, made: str) -> tuple[str, ...]:
    return tuple(one.name for one in found.attributes if one.made == made)


def _counts(found: Inventory) -> dict[str, int]:
    methods = found.methods
    writes = [write for method in methods for write in method.state_writes]
    return {
        "hasattr on self": sum(item.kind == "hasattr" for m in methods for item in m.reflection),
        "getattr on self": sum(item.kind == "getattr" for m in methods for item in m.reflection),
        "on other objects": sum(len(m.reflection_elsewhere) for m in methods),
        "computed names": sum(item.attribute is None for m in methods for item in m.reflection),
        "collectives": sum(len(m.collectives) for m in methods),
        "environment uses": sum(len(m.environment) for m in methods),
        "local imports": sum(len(m.local_imports) for m in methods),
        "writes to classes": sum(write.holder in ("class", "imported") for write in writes),
        "writes to globals": sum(write.holder == "global" for write in writes),
        "writes into other objects": sum(write.holder == "object" for write in writes),
        "closures over self": sum(len(m.nested_over_self) for m in methods),
        "escapes of self": sum(escape.what == "self" for m in methods for escape in m.escapes),
        "methods passed as values": sum(escape.what != "self" for m in methods for escape in m.escapes),
    }
