"""Declared rewrites of a moved body, beside `self` becoming a handle: where they stand and what they become.

super()                    super(Worker, self._host)     the class and instance that Python would fill in
self.__pages, x.__pages    ..._Worker__pages              what the class body mangles it to
from .units import MB      from app.units import MB       the handler lives elsewhere
LIMIT                      worker_module.LIMIT            a module variable that may change, or be missing,
                                                          is read where it lives, when it is read
warn(..., stacklevel=2)    warn(..., stacklevel=3)        the stub is one frame more
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from migration.code.facts import own_scope
from migration.code.source import Source
from migration.code.structure import ClassOutline
from migration.move.moving import Moving, mangled
from migration.move.stack_levels import CALLER, levels

_FROM = re.compile(rb"from(\s*)(\.[.\s]*[\w.]*)(\s*)import\b")


@dataclass(frozen=True)
class LineEdit:
    """Replace `length` bytes at a byte column of a line (1-based) by `text`."""

    line: int
    column: int
    length: int
    text: bytes


def may_name_class(source: Source, outline: ClassOutline) -> bool:
    """True when the module-level name of the class is the class that `__class__` would be."""
    bound = sum(
        getattr(node, "name", None) == outline.name
        or any(isinstance(n, ast.Name) and n.id == outline.name for n in getattr(node, "targets", ()))
        for node in source.tree.body
    )
    return bound == 1 and not outline.node.decorator_list


def super_calls(moving: Moving) -> list[ast.Call]:
    """`super()` calls in the scope of the method itself."""
    comprehensions = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    inner = {
        id(child)
        for node in own_scope(moving.node)
        if isinstance(node, comprehensions)
        for child in ast.walk(node)
    }
    return [
        node
        for node in own_scope(moving.node)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "super"
        and not (node.args or node.keywords)
        and id(node) not in inner
        and moving.facts.self_name is not None
    ]


def import_span(source: Source, node: ast.ImportFrom) -> tuple[int, int] | None:
    """Byte columns of the module path in `from .x import ...`, None when it is not on one line."""
    found = _FROM.match(source.lines[node.lineno - 1], node.col_offset)
    return found.span(2) if found else None


def absolute(package: str, node: ast.ImportFrom) -> str:
    """The module that a relative import of a module in `package` names."""
    base = package.split(".")
    return ".".join([*base[: len(base) - node.level + 1], *([node.module] if node.module else [])])


def late_reads(moving: Moving, late: frozenset[str]) -> Iterator[ast.Name]:
    """Reads of module variables that stay in the worker module; annotations are not run and stay as they are."""
    stack: list[ast.AST] = list(moving.node.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name) and node.id in late:
            yield node
        for field, value in ast.iter_fields(node):
            if field not in ("annotation", "returns"):
                parts = value if isinstance(value, list) else [value]
                stack += [part for part in parts if isinstance(part, ast.AST)]


def body_edits(
    source: Source, class_name: str, package: str, moving: Moving, host: str, late: frozenset[str], alias: str
) -> list[LineEdit]:
    """All edits of this module for one method; `host` is the handle that stands for the worker itself."""
    edits: list[LineEdit] = []
    for call in super_calls(moving):
        assert call.end_lineno is not None and call.end_col_offset is not None
        text = f"{class_name}, {moving.facts.self_name}._{host}".encode()
        edits.append(LineEdit(call.end_lineno, call.end_col_offset - 1, 0, text))
    for node in _outside_classes(moving.node):
        if isinstance(node, ast.Attribute) and (name := mangled(node.attr, class_name)) != node.attr:
            assert node.end_lineno is not None and node.end_col_offset is not None
            prefix = name.removesuffix(node.attr).encode()
            edits.append(LineEdit(node.end_lineno, node.end_col_offset - len(node.attr.encode()), 0, prefix))
    for node in ast.walk(moving.node):
        if isinstance(node, ast.ImportFrom) and node.level and (span := import_span(source, node)):
            text = absolute(package, node).encode()
            spaced = source.lines[node.lineno - 1][span[1] : span[1] + 1].isspace()
            before = source.lines[node.lineno - 1][span[0] - 1 : span[0]].isspace()
            text = (b"" if before else b" ") + text + (b"" if spaced else b" ")
            edits.append(LineEdit(node.lineno, span[0], span[1] - span[0], text))
    for read in late_reads(moving, late):
        edits.append(LineEdit(read.lineno, read.col_offset, 0, f"{alias}.".encode()))
    edits += [
        LineEdit(level.lineno, level.col_offset, 1, b"%d" % (CALLER + 1)) for level in levels(moving.node)
    ]
    return edits


def _outside_classes(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes below `node` that are mangled by the name of its class: nested classes have their own."""
    stack: list[ast.AST] = list(ast.iter_child_nodes(node))
    while stack:
        current = stack.pop()
        yield current
        if not isinstance(current, ast.ClassDef):
            stack += ast.iter_child_nodes(current)
