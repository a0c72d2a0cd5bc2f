"""The outline of one class: its sections by banner comment, its methods and where each begins and ends."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from migration.code.source import Source
from migration.errors import MigrationError

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

_RULER = r"[=\-*~#]{3,}"
_BANNER = re.compile(rf"#\s*{_RULER}\s*(?P<title>[^\s=\-*~#].*?)\s*{_RULER}\s*$")
_RULER_LINE = re.compile(rf"#\s*{_RULER}\s*$")
_TITLE_LINE = re.compile(r"#\s*(?P<title>[^\s#].*?)\s*$")


@dataclass(frozen=True)
class Method:
    """One definition in the class body; `first_line` includes its decorators.

    `block_start`/`block_end` also take in the comment block glued above it and the comments that
    close its body: the lines that belong to it and move with it.
    """

    name: str
    node: FunctionNode
    first_line: int
    last_line: int
    block_start: int
    block_end: int
    conditional: bool


@dataclass(frozen=True)
class Section:
    """Lines from a banner to the next one. A stretch without a banner has no title."""

    title: str | None
    first_line: int
    last_line: int
    methods: tuple[Method, ...]


@dataclass(frozen=True)
class ClassOutline:
    name: str
    node: ast.ClassDef
    sections: tuple[Section, ...]

    @property
    def methods(self) -> tuple[Method, ...]:
        return tuple(method for section in self.sections for method in section.methods)

    def definitions(self, name: str) -> tuple[Method, ...]:
        return tuple(method for method in self.methods if method.name == name)


def classes(source: Source) -> tuple[ast.ClassDef, ...]:
    """Module-level classes, the longest first."""
    found = [node for node in source.tree.body if isinstance(node, ast.ClassDef)]
    return tuple(sorted(found, key=lambda node: node.lineno - (node.end_lineno or node.lineno)))


def top_imports(source: Source) -> Iterator[ast.stmt]:
    """The docstring and the imports that open a module."""
    for index, node in enumerate(source.tree.body):
        docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not (docstring or isinstance(node, ast.Import | ast.ImportFrom)):
            return
        yield node


def outline(source: Source, class_name: str | None = None) -> ClassOutline:
    """Outline of the named class, or of the longest one; MG102 when there is none or more than one."""
    found = [node for node in classes(source) if class_name in (None, node.name)]
    if not found:
        names = ", ".join(node.name for node in classes(source)) or "none"
        wanted = (
            f"no module-level class {class_name}; it has {names}" if class_name else "no module-level class"
        )
        raise MigrationError("MG102", f"{source.path}: {wanted}")
    if class_name is not None and len(found) > 1:
        raise MigrationError("MG102", f"{source.path}: class {class_name} is defined {len(found)} times")
    node = found[0]
    return ClassOutline(node.name, node, _sections(source, node, _methods(source, node)))


def _methods(source: Source, node: ast.ClassDef) -> list[Method]:
    found: list[Method] = []
    own = frozenset(comment.line for comment in source.comments if comment.own_line)

    def visit(body: list[ast.stmt], conditional: bool) -> None:
        for statement in body:
            if isinstance(statement, FunctionNode):
                found.append(_method(source, statement, conditional, own))
            elif not isinstance(statement, ast.ClassDef):
                for field in ("body", "orelse", "finalbody"):
                    visit(getattr(statement, field, []), True)
                for handler in getattr(statement, "handlers", []):
                    visit(handler.body, True)

    visit(node.body, False)
    return found


def _method(source: Source, node: FunctionNode, conditional: bool, own: frozenset[int]) -> Method:
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    last = node.end_lineno or node.lineno
    indent = source.indent_of(first)
    start = first
    while start - 1 in own and source.indent_of(start - 1) == indent and not _is_banner(source, start - 1):
        start -= 1
    # Comments indented deeper than the definition close its body, across blank lines.
    end, line = last, last + 1
    while line <= len(source.lines):
        text = source.lines[line - 1].strip()
        if line in own and len(source.indent_of(line)) > len(indent):
            end = line
        elif text:
            break
        line += 1
    return Method(node.name, node, first, last, start, end, conditional)


def _is_banner(source: Source, line: int) -> bool:
    text = source.lines[line - 1].strip().decode()
    return bool(_BANNER.match(text) or _RULER_LINE.match(text))


def _banners(source: Source, node: ast.ClassDef, methods: list[Method]) -> list[tuple[int, str]]:
    """(line, title) of the banner comments that stand in the class body itself."""
    indent = source.indent_of(node.body[0].lineno)
    taken = {line for method in methods for line in range(method.first_line, method.last_line + 1)}
    own = {
        comment.line: comment.text
        for comment in source.comments
        if comment.own_line
        and node.lineno < comment.line <= _class_end(source, node)
        and comment.line not in taken
        and source.indent_of(comment.line) == indent
    }
    found: list[tuple[int, str]] = []
    for line, text in sorted(own.items()):
        if banner := _BANNER.match(text):
            found.append((line, banner["title"]))
        elif (
            _RULER_LINE.match(text)
            and _RULER_LINE.match(own.get(line + 2, ""))
            and (title := _TITLE_LINE.match(own.get(line + 1, "")))
            and not _RULER_LINE.match(own[line + 1])
        ):
            found.append((line, title["title"]))
    return found


def _class_end(source: Source, node: ast.ClassDef) -> int:
    """Last line of the class, with comments at body indentation that follow its last statement."""
    end = node.end_lineno or node.lineno
    body = len(source.indent_of(node.body[0].lineno))
    line = end + 1
    while line <= len(source.lines):
        text = source.lines[line - 1].strip()
        if text.startswith(b"#") and len(source.indent_of(line)) >= body:
            end = line
        elif text:
            break
        line += 1
    return end


def _sections(source: Source, node: ast.ClassDef, methods: list[Method]) -> tuple[Section, ...]:
    marks: list[tuple[int, str | None]] = [(node.lineno, None)]
    for line, title in _banners(source, node, methods):
        # `End X` closes a section: what follows belongs to no banner.
        marks.append((line, None if title.lower().startswith("end ") else title))
    ends = [line - 1 for line, _ in marks[1:]] + [_class_end(source, node)]
    return tuple(
        Section(title, first, last, tuple(m for m in methods if first <= m.first_line <= last))
        for (first, title), last in zip(marks, ends, strict=True)
    )
