"""Terminal tables, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from migration.errors import CATALOGUE, Refusal
from migration.move.cut import CutClean, CutOutcome, CutPlan
from migration.survey.inventory import Inventory, MethodReport

if TYPE_CHECKING:
    from migration.inverse.inline import InlinePlan
    from migration.inverse.replay import Replay, State


def as_json(value: Any) -> None:
    """`value` on stdout, indented, with a final newline."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def line(text: str) -> None:
    """One line of plain text, never folded."""
    Console().print(text, soft_wrap=True, highlight=False, markup=False)


def inventory(found: Inventory) -> None:
    console = Console()
    others = f" (also here: {', '.join(found.other_classes)})" if found.other_classes else ""
    lines = found.last_line - found.first_line + 1
    console.print(
        f"[bold]{found.class_name}[/] in {escape(found.path)}: {lines} lines{others}",
        soft_wrap=True,
        highlight=False,
    )
    sections = Table(
        "section", "lines", "methods", "lines in methods", title="Sections", title_justify="left"
    )
    for section in found.sections:
        title = escape(section.title) if section.title else "[dim](no banner)[/]"
        span = f"{section.first_line}-{section.last_line}"
        sections.add_row(title, span, str(section.methods), str(section.method_lines))
    console.print(sections)
    methods = Table(title="Methods")
    methods.add_column("method", no_wrap=True)
    for name in ("line", "length", "reads", "writes", "calls"):
        methods.add_column(name, justify="right", no_wrap=True)
    methods.add_column("worth knowing", overflow="fold", ratio=1)
    methods.title_justify = "left"
    section_title: str | None = ""
    for method in found.methods:
        if method.section != section_title:
            section_title = method.section
            methods.add_section()
            methods.add_row(f"[bold]{escape(section_title or '(no banner)')}[/]")
        counts = (len(method.reads), len(method.writes), len(method.calls))
        methods.add_row(
            method.name,
            str(method.first_line),
            str(method.lines),
            *(str(count or "") for count in counts),
            escape("; ".join(_hazards(method))),
        )
    console.print(methods)
    duplicates = sorted({method.name for method in found.methods if method.other_definitions})
    console.print(
        f"{len(found.methods)} methods, {len(found.attributes)} attributes, "
        f"{len(found.lazy_attributes)} created outside __init__, {len(duplicates)} defined more than once",
        soft_wrap=True,
        highlight=False,
    )
    if found.lazy_attributes:
        console.print(
            "created outside __init__: " + ", ".join(found.lazy_attributes), soft_wrap=True, highlight=False
        )


def _hazards(method: MethodReport) -> list[str]:
    notes: list[str] = []
    if method.other_definitions:
        notes.append("also defined at line " + ", ".join(map(str, method.other_definitions)))
    if method.creates_lazily:
        notes.append("creates " + ", ".join(method.creates_lazily))
    kinds: dict[str, list[str]] = {}
    for item in method.reflection:
        kinds.setdefault(item.kind, []).append(item.attribute or f"line {item.line}")
    notes += [f"{kind} {', '.join(dict.fromkeys(names))}" for kind, names in kinds.items()]
    if method.method_references:
        notes.append("passes " + ", ".join(method.method_references))
    if method.nested_over_self:
        notes.append("closes over self: " + ", ".join(method.nested_over_self))
    if method.self_escapes:
        notes.append("bare self at line " + ", ".join(map(str, method.self_escapes)))
    if method.collectives:
        notes.append("collective " + ", ".join(f"{name}:{line}" for name, line in method.collectives))
    if method.environment:
        notes.append("env " + ", ".join(f"{name}:{line}" for name, line in method.environment))
    return notes


def outcome(found: CutOutcome, *, written: bool) -> None:
    console = Console()
    if isinstance(found, CutClean):
        console.print(f"{found.recipe.name}: nothing to do, {len(found.methods)} methods are stubs already")
    elif isinstance(found, CutPlan):
        _plan(console, found, written=written)
    else:
        refusals(found.recipe.name, found.refusals)


def refusals(name: str, found: Sequence[Refusal]) -> None:
    """Why nothing was written, with the way out of each."""
    table = Table("code", "where", "line", "why", "way out", title=f"{name}: refused, nothing written")
    for refusal in found:
        why = f"{CATALOGUE[refusal.code].title}: {refusal.message}"
        line = str(refusal.line or "")
        table.add_row(refusal.code, escape(refusal.where), line, escape(why), escape(refusal.way_out))
    Console().print(table)


def inlined(name: str, found: InlinePlan, *, written: bool) -> None:
    console = Console()
    verb = "folded" if written else "would fold"
    exact = "the class's file has its original bytes" if found.exact else "edits made since the cut are kept"
    console.print(
        f"[bold]{escape(name)}[/]: {verb} {len(found.methods)} methods back; {exact}",
        soft_wrap=True,
        highlight=False,
    )
    for change in found.changes:
        verb = "deleted" if change.after is None else "changed"
        console.print(f"  {verb} {escape(change.path)}", soft_wrap=True, highlight=False)


def replayed(found: Replay) -> None:
    """A row for each method, and the counts."""
    table = Table("method", "line", "state", "", title=f"{found.recipe.name} on {found.recipe.source_file}")
    colours = {"unchanged": "green", "re-derived": "yellow", "conflict": "red"}
    for method in found.methods:
        state = f"[{colours[method.state]}]{method.state}[/]"
        table.add_row(escape(method.name), str(method.line or ""), state, escape(method.why))
    Console().print(table)
    states: tuple[State, ...] = ("unchanged", "re-derived", "conflict")
    line(", ".join(f"{found.count(state)} {state}" for state in states))


def verdicts(rows: Sequence[Mapping[str, Any]]) -> None:
    console = Console()
    for row in rows:
        state = "[green]holds[/]" if row["holds"] else "[red]broken[/]"
        console.print(
            f"[bold]{escape(row['slice'])}[/]: {state}: {row['methods']} methods, {row['file']} -> {row['handler']}",
            soft_wrap=True,
            highlight=False,
        )
        if row["holds"]:
            renames = ", ".join(f"self became self._{name} {count}x" for name, count in row["renames"])
            console.print(f"  {renames or 'no use of self'}", soft_wrap=True, highlight=False)
            console.print(f"  the original was restored: {row['original']}", soft_wrap=True, highlight=False)
        for reason in row["reasons"]:
            console.print(f"  MG208 {escape(reason)}", soft_wrap=True, highlight=False)


def _plan(console: Console, found: CutPlan, *, written: bool) -> None:
    recipe, proof = found.recipe, found.proof
    verb = "moved" if written else "would move"
    console.print(
        f"[bold]{recipe.name}[/]: {verb} {proof.methods} methods of {recipe.source_class} "
        f"to {recipe.handler_class} in {recipe.target_file}",
        soft_wrap=True,
        highlight=False,
    )
    renames = dict(proof.renames)
    table = Table(
        "handle", "protocol", "members", "written", "uses", title="self became", title_justify="left"
    )
    for handle in found.handles:
        table.add_row(
            f"self._{handle.spec.name}",
            handle.spec.protocol,
            str(len(handle.members)),
            ", ".join(member.name for member in handle.members if member.written),
            str(renames.get(handle.spec.name, 0)),
        )
    console.print(table)
    console.print(
        f"verified: both files compile; {proof.methods} moved bodies equal the originals with the handles "
        f"taken out; {proof.methods} signatures kept; {proof.comments} comments conserved; "
        f"{proof.bytes_untouched} bytes outside the cut identical; no new undefined or unused name; "
        "a second run changes nothing",
        soft_wrap=True,
        highlight=False,
    )
    for detail in proof.details:
        if detail.lazy_imports:
            console.print(
                f"  {detail.name} takes from the worker at each call: {', '.join(detail.lazy_imports)}",
                soft_wrap=True,
                highlight=False,
            )
        rewrites = [kind if count == 1 else f"{kind} ({count})" for kind, count in detail.rewrites]
        if rewrites:
            console.print(
                f"  {detail.name}: {'; '.join(rewrites)}", soft_wrap=True, highlight=False, markup=False
            )
    if proof.declared:
        declared = Table("from", "to", "places", title="declared rewrites", title_justify="left")
        for before, after, count in proof.declared:
            declared.add_row(escape(before), escape(after), str(count))
        console.print(declared)
    if proof.imports_removed:
        console.print(
            f"  imports only they used, removed: {', '.join(proof.imports_removed)}",
            soft_wrap=True,
            highlight=False,
        )
    for note in found.notes:
        console.print(f"  note: {escape(note)}", soft_wrap=True, highlight=False)
    for change in found.changes:
        size = (change.after or b"").count(b"\n") - (change.before or b"").count(b"\n")
        verb = "new" if change.before is None else "deleted" if change.after is None else "changed"
        console.print(
            f"  {verb} {change.path} ({size:+} lines)",
            soft_wrap=True,
            highlight=False,
        )
