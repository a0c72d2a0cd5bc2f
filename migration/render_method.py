"""What is worth knowing of one method: in one line, and in full."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape

from migration.survey.effects.values import StateWrite
from migration.survey.reports import Inventory, MethodReport

_SHOWN = 4


def method_notes(method: MethodReport) -> list[str]:
    """Short notes, the gravest first; long lists are cut, `method_details` has all of them."""
    notes: list[str] = []
    if method.other_definitions:
        notes.append("also defined at line " + ", ".join(map(str, method.other_definitions)))
    traits: list[str] = [method.kind] if method.kind != "method" else []
    traits += ["async"] * method.asynchronous + ["generator"] * method.generator
    traits += ["conditional"] * method.conditional
    if traits:
        notes.append(" ".join(traits))
    if method.decorators and method.kind == "method":
        notes.append("@" + ", @".join(method.decorators))
    for title, items in _facts(method):
        if items:
            more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN + 1 else ""
            notes.append(f"{title} {', '.join(items[: _SHOWN if more else None])}{more}")
    return notes


def method_details(found: Inventory, console: Console) -> None:
    """Everything about the methods of a selection of `select_method`."""
    for method in found.methods:
        where = f"{found.path}:{method.first_line}-{method.last_line}, {method.lines} lines"
        _say(console, f"[bold]{found.class_name}.{method.name}[/]{escape(method.signature)}")
        _say(console, f"  {escape(where)}, in {escape(method.group)}")
        notes = method_notes(method)
        kinds = [
            note for note in notes if note.startswith(("also defined", "@")) or note.split()[0] in _KINDS
        ]
        for note in kinds:
            _say(console, f"  {escape(note)}")
        for title, items in (
            ("reads", method.reads),
            ("writes", method.writes),
            ("changes in place", method.mutates),
            ("calls", method.calls),
            ("uses of the module", method.module_names),
            *_facts(method),
        ):
            if items:
                _say(console, f"  {title}: {escape(', '.join(items))}")
        for one in found.attributes:
            others = [user for user in one.writers if user != method.name]
            if one.name in method.reads and others:
                _say(console, f"  [dim]{one.name} is written by {escape(', '.join(others))}[/]")


_KINDS = (
    "special",
    "property",
    "accessor",
    "static",
    "class",
    "overload",
    "async",
    "generator",
    "conditional",
)


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False)


def _facts(method: MethodReport) -> list[tuple[str, list[str]]]:
    reflection: dict[str, list[str]] = {}
    for item in method.reflection:
        if item.kind != "delete":
            reflection.setdefault(item.kind, []).append(item.attribute or f"line {item.line}")
    return [
        ("super().", list(method.super_calls)),
        ("private", list(method.private_names)),
        ("creates", list(method.creates_lazily)),
        ("deletes", list(method.deletes)),
        *((kind, _once(names)) for kind, names in reflection.items()),
        ("writes to", _once(_written(write) for write in method.state_writes)),
        ("passes", _once(f"{escape.what} ({escape.how}):{escape.line}" for escape in method.escapes)),
        ("self is also", list(method.self_aliases)),
        ("closes over self:", list(method.nested_over_self)),
        (
            "collective",
            [f"{one.name}:{one.line}{' (conditional)' * one.conditional}" for one in method.collectives],
        ),
        (
            "env",
            [f"{use.variable}:{use.line}{' (written)' * (use.how == 'write')}" for use in method.environment],
        ),
        (
            "imports",
            [f"{one.origin}:{one.line}{' (may fail)' * one.guarded}" for one in method.local_imports],
        ),
        (
            "asks others for",
            _once(f"{item.on}.{item.attribute or '?'}" for item in method.reflection_elsewhere),
        ),
        ("ends the process:", [f"{name}:{line}" for name, line in method.exits]),
    ]


def _once(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _written(write: StateWrite) -> str:
    target = write.target.rpartition(".")[2] if write.holder == "imported" else write.target
    name = f"{target}.{write.attribute}" if target and write.attribute else target or write.attribute
    kind = {"class": "", "imported": "", "global": "global ", "object": ""}[write.holder]
    return f"{kind}{name}" + {"item": "[...]", "call": " in place", "delete": " (deleted)"}.get(write.how, "")
