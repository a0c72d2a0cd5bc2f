"""One handler method as it would stand in the class: handles taken out, indentation of the class.

This is the plain inverse. What it cannot know (white space that the move normalised, a decorator that
stayed on the stub) is kept as hunks beside the proof.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from migration.code.facts import dotted, parameters, self_name
from migration.code.source import Source
from migration.code.structure import Method
from migration.move.body import LineEdit
from migration.move.stack_levels import CALLER, levels
from migration.patterns import links
from migration.recipe import Recipe

_LEAD = re.compile(rb"(?:    )*")


@dataclass(frozen=True)
class Place:
    """Where a method goes back to: its label there, the class's indentation, one step of it, line ends."""

    label: str
    base: bytes
    unit: bytes
    eol: bytes


def unmoved_text(
    handler: Source, method: Method, recipe: Recipe, place: Place, prologue: int, alias: str | None
) -> bytes:
    """`prologue` statements (imports from the worker module) at the start of the body are left out."""
    changes: dict[int, list[LineEdit]] = {}
    for edit in _edits(method, recipe, place, alias):
        changes.setdefault(edit.line, []).append(edit)
    dropped = _prologue_lines(handler, method, prologue)
    parts: list[bytes] = []
    for line in range(method.block_start, method.block_end + 1):
        if line in dropped:
            continue
        text = handler.lines[line - 1]
        for change in sorted(changes.get(line, ()), key=lambda change: change.column, reverse=True):
            text = text[: change.column] + change.text + text[change.column + change.length :]
        if line not in handler.string_lines and text.strip():
            body = text.removeprefix(b"    ")
            lead = _LEAD.match(body)
            assert lead is not None
            depth = lead.end() // 4
            text = place.base + place.unit * depth + body[lead.end() :]
        parts.append(
            text.removesuffix(b"\n").removesuffix(b"\r") + place.eol if text.endswith(b"\n") else text
        )
    return b"".join(parts)


def _prologue_lines(handler: Source, method: Method, count: int) -> frozenset[int]:
    """Lines of the first `count` statements after the docstring, with the blank line that sets them off."""
    body = method.node.body
    start = 1 if ast.get_docstring(method.node, clean=False) is not None else 0
    found: set[int] = set()
    for statement in body[start : start + count]:
        found.update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    following = max(found, default=0) + 1
    if found and following <= method.block_end and not handler.lines[following - 1].strip():
        found.add(following)
    return frozenset(found)


def _edits(method: Method, recipe: Recipe, place: Place, alias: str | None) -> Iterator[LineEdit]:
    node = method.node
    owner = self_name(node)
    handles = {f"_{handle.name}": handle for handle in recipe.handles}
    rewritten = {spec.after: spec.before for spec in recipe.rewrites}
    if (snapshot := recipe.snapshot) is not None:
        rewritten |= {f"self.{snapshot.name}.{p.rpartition('.')[2]}": f"self.{p}" for p in snapshot.fields}
    prefix = f"_{recipe.source_class.lstrip('_')}"
    if node.name != place.label:
        words = "async def " if isinstance(node, ast.AsyncFunctionDef) else "def "
        column = node.col_offset + len(words)
        yield LineEdit(node.lineno, column, len(node.name.encode()), place.label.encode())
    for level in levels(node, CALLER + 1):
        length = (level.end_col_offset or 0) - level.col_offset
        yield LineEdit(level.lineno, level.col_offset, length, b"%d" % CALLER)
    stack: list[ast.AST] = [*node.args.defaults, *(d for d in node.args.kw_defaults if d), *node.body]
    while stack:
        part = stack.pop()
        if (before := _rewritten(part, owner, rewritten)) is not None:
            assert isinstance(part, ast.expr)
            length = (part.end_col_offset or 0) - part.col_offset
            yield LineEdit(part.lineno, part.col_offset, length, before.encode())
            continue
        stack += _visible(part, owner)
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            name = part.value
            spec = handles.get(part.attr)
            end, start = part.end_col_offset or 0, name.end_col_offset or 0
            if name.id == owner and part.attr in handles and part.lineno == part.end_lineno:
                chain = (
                    "".join(f".{link}" for link in links(spec.expressions[0]))
                    if spec and spec.expressions
                    else ""
                )
                yield LineEdit(name.lineno, start, end - start, chain.encode())
            elif alias is not None and name.id == alias:
                length = end - name.col_offset - len(part.attr.encode())
                yield LineEdit(name.lineno, name.col_offset, length, b"")
        if isinstance(part, ast.Attribute) and part.attr.startswith(f"{prefix}__"):
            column = (part.end_col_offset or 0) - len(part.attr.encode())
            yield LineEdit(part.end_lineno or part.lineno, column, len(prefix), b"")
        if isinstance(part, ast.Call) and ast.unparse(part.func) == "super" and len(part.args) == 2:
            first, last = part.args
            if ast.unparse(first) == recipe.source_class and first.lineno == last.end_lineno:
                length = (last.end_col_offset or 0) - first.col_offset
                yield LineEdit(first.lineno, first.col_offset, length, b"")
                stack = [other for other in stack if other not in (first, last)]


def _rewritten(node: ast.AST, owner: str | None, rewritten: Mapping[str, str]) -> str | None:
    """What the recipe's rewrite of the expression `node` was made from, None where there is none."""
    if (
        not rewritten
        or owner is None
        or not isinstance(node, ast.Attribute)
        or node.lineno != node.end_lineno
    ):
        return None
    first, _, rest = dotted(node).partition(".")
    before = (
        rewritten.get(f"self.{rest.removeprefix('_')}") if first == owner and rest.startswith("_") else None
    )
    if before is None or owner == "self":
        return before
    tree = ast.parse(before, mode="eval")
    for name in ast.walk(tree):
        if isinstance(name, ast.Name) and name.id == "self":
            name.id = owner
    return ast.unparse(tree)


def _visible(node: ast.AST, owner: str | None) -> list[ast.AST]:
    """Children in which the name of self still means self."""
    arguments = getattr(node, "args", None)
    if isinstance(arguments, ast.arguments) and owner in parameters(arguments):
        return [default for default in (*arguments.defaults, *arguments.kw_defaults) if default is not None]
    return list(ast.iter_child_nodes(node))
