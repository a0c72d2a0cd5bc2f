"""Text of one moved method and of the stub that it leaves behind: byte edits at exact positions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from migration.code.facts import is_static
from migration.code.source import Comment, Source
from migration.code.structure import FunctionNode
from migration.move.body import LineEdit
from migration.move.moving import (
    ASYNC_CONTEXT_MANAGERS,
    CONTEXT_MANAGERS,
    Moving,
    decorator_name,
    default_of,
    yields,
)
from migration.recipe import Recipe

WIDTH = 110


def reindent(
    source: Source, first: int, last: int, base: bytes, edit: Callable[[int], Sequence[bytes]]
) -> bytes:
    """Lines first..last with `base` turned into four spaces and further tabs into four spaces each.

    A line that begins inside a string literal keeps its bytes; `edit` gives what a line becomes.
    """
    parts: list[bytes] = []
    for line in range(first, last + 1):
        for text in edit(line):
            body = text.lstrip(b" \t\f")
            if line in source.string_lines:
                parts.append(text)
            elif not body.strip():
                parts.append(source.eol)
            else:
                # A form feed in the indentation starts the line anew.
                lead = text[: len(text) - len(body)].rpartition(b"\f")[2]
                inner = lead.removeprefix(base)
                depth = b"    " if lead.startswith(base) else b""
                parts.append(depth + inner.replace(b"\t", b"    ") + body)
    if not parts[-1].endswith(source.eol):
        parts.append(source.eol)
    return b"".join(parts)


def moved_text(
    source: Source,
    moving: Moving,
    receiver: Callable[[int, int], str | None],
    edits: Iterable[LineEdit],
    prologue: Sequence[str],
) -> bytes:
    """The method as it stands in the handler, indented by four spaces.

    `receiver(line, column)` names the handle through which the self at that position goes, None to
    leave it; `edits` are further declared rewrites; `prologue` are statements to put first in the body.
    """
    facts, node = moving.facts, moving.node
    changes: dict[int, list[LineEdit]] = {}
    for declared in (*edits, *_head_edits(moving)):
        changes.setdefault(declared.line, []).append(declared)
    for use in facts.uses:
        if (handle := receiver(use.line, use.column)) is not None:
            column = use.column + len((facts.self_name or "").encode())
            changes.setdefault(use.line, []).append(LineEdit(use.line, column, 0, f"._{handle}".encode()))
    base = source.indent_of(node.lineno)
    dropped = {
        line
        for decorator in moving.staying
        for line in range(decorator.lineno, (decorator.end_lineno or decorator.lineno) + 1)
    }
    opening: dict[int, list[bytes]] = {}
    if prologue:
        line, inside = _prologue(source, node)
        if inside is None:
            indent = source.indent_of(node.body[-1].lineno)
            opening[line] = [indent + statement.encode() + source.eol for statement in prologue]
            if not source.lines[line - 1].lstrip().startswith((b"from ", b"import ", source.eol)):
                opening[line].append(source.eol)
        else:
            text = "".join(f"{statement}; " for statement in prologue).encode()
            changes.setdefault(line, []).append(LineEdit(line, inside, 0, text))

    def edit(line: int) -> list[bytes]:
        text = source.lines[line - 1]
        if line in dropped:
            return [_comment_of(source, line)] if line in _comment_lines(source) else []
        for change in sorted(changes.get(line, ()), key=lambda change: change.column, reverse=True):
            text = text[: change.column] + change.text + text[change.column + change.length :]
        return [*opening.get(line, ()), text]

    return reindent(source, moving.method.block_start, moving.method.block_end, base, edit)


@lru_cache(maxsize=4)
def _comment_lines(source: Source) -> dict[int, Comment]:
    return {comment.line: comment for comment in source.comments}


def _comment_of(source: Source, line: int) -> bytes:
    """The comment that follows a decorator, on a line of its own: the decorator stays, its comment moves."""
    indent = source.indent_of(line)
    return indent + _comment_lines(source)[line].text.encode() + source.eol


def _head_edits(moving: Moving) -> Iterator[LineEdit]:
    """The definition's name in the handler, and its parameters without defaults where these stay."""
    node = moving.node
    if moving.name != node.name:
        yield LineEdit(node.lineno, moving.name_column, len(node.name.encode()), moving.name.encode())
    if moving.bare:
        for arg, default in default_of(node):
            start = arg.end_col_offset or 0
            yield LineEdit(arg.lineno, start, (default.end_col_offset or start) - start, b"")


def header_end(source: Source, node: FunctionNode) -> int:
    """Last line of the logical line that the definition begins with."""
    return source.logical_end(node.lineno)


def _prologue(source: Source, node: FunctionNode) -> tuple[int, int | None]:
    """Where the body begins after its docstring: (line, None) for a line start, (line, column) inside one."""
    after = header_end(source, node)
    first = node.body[0]
    if has_docstring(node) and len(node.body) > 1:
        after = node.body[0].end_lineno or after
        first = node.body[1]
    return (first.lineno, first.col_offset) if first.lineno <= after else (after + 1, None)


def has_docstring(node: FunctionNode) -> bool:
    value = getattr(node.body[0], "value", None)
    return type(node.body[0]).__name__ == "Expr" and isinstance(getattr(value, "value", None), str)


def signature_text(source: Source, node: FunctionNode) -> bytes:
    """The definition from `def` to before its colon, byte for byte but without comments."""
    parts: list[bytes] = []
    start = source.offset(node.lineno, node.col_offset)
    for mark in source.marks(node.lineno):
        if mark.text == b":" and not mark.depth:
            return b"".join((*parts, source.data[start : mark.start]))
        if mark.text.startswith(b"#"):
            line, column = source.place(mark.start)
            lead = source.lines[line - 1][:column].rstrip(b" \t")
            parts.append(source.data[start : source.offset(line) + len(lead)])
            start = mark.end if lead else source.offset(line + 1)
    raise ValueError(f"{source.path}:{node.lineno}: no colon ends the definition")


def stub_text(source: Source, moving: Moving, recipe: Recipe) -> bytes:
    """The delegating method that stays on the worker, with the exact signature of the original."""
    node, facts = moving.node, moving.facts
    indent = source.indent_of(moving.method.first_line).decode()
    unit = indent_unit(source, node, indent)
    eol = source.eol.decode()
    decorators = moving.moving_decorators
    kept = [
        f"{indent}@{_uncommented(source, expression)}{eol}"
        for expression in node.decorator_list
        if expression in moving.staying
        or decorator_name(expression) in {"staticmethod"} | CONTEXT_MANAGERS | ASYNC_CONTEXT_MANAGERS
    ]
    _, served = recipe.served
    target = served if is_static(node) else f"{served}.for_worker({facts.self_name})"
    arguments = forwarded(node, skip_first=not is_static(node))
    inner = indent + unit

    def statement(prefix: str, suffix: str) -> str:
        line = f"{inner}{prefix}{target}.{moving.name}({', '.join(arguments)}){suffix}{eol}"
        if len(line.expandtabs(4).rstrip()) <= WIDTH:
            return line
        wrapped = "".join(f"{inner}{unit}{argument},{eol}" for argument in arguments)
        return f"{inner}{prefix}{target}.{moving.name}({eol}{wrapped}{inner}){suffix}{eol}"

    asynchronous = isinstance(node, ast.AsyncFunctionDef) and not moving.is_async_generator
    if (CONTEXT_MANAGERS | ASYNC_CONTEXT_MANAGERS) & set(decorators):
        body = (
            statement("async with " if asynchronous else "with ", " as value:")
            + f"{inner}{unit}yield value{eol}"
        )
    elif moving.is_async_generator:
        body = statement("return ", "")
    elif asynchronous:
        body = statement("return await ", "")
    elif yields(node):
        body = statement("return (yield from ", ")")
    else:
        body = statement("return ", "")
    signature = signature_text(source, node).decode()
    if moving.is_async_generator:
        signature = signature.removeprefix("async").lstrip()
    docstring = ""
    if moving.documented and has_docstring(node):
        docstring = f"{inner}{source.segment(node.body[0]).decode()}{eol}"
    return "".join((*kept, f"{indent}{signature}:{eol}", docstring, body)).encode()


def _uncommented(source: Source, node: ast.expr) -> str:
    """The text of a decorator; comments inside it move with the body."""
    lines = source.segment(node).decode().split("\n")
    for comment in source.comments:
        if node.lineno <= comment.line < (node.end_lineno or node.lineno):
            index = comment.line - node.lineno
            head, _, tail = lines[index].rpartition(comment.text)
            lines[index] = head.rstrip() + tail
    return "\n".join(line for line in lines if line.strip())


def indent_unit(source: Source, node: FunctionNode, indent: str) -> str:
    first = node.body[0].lineno
    inner = source.indent_of(first).decode() if first > header_end(source, node) else ""
    return inner.removeprefix(indent) or ("\t" if "\t" in indent else "    ")


def forwarded(node: FunctionNode, *, skip_first: bool) -> list[str]:
    arguments = node.args
    positional = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args)][int(skip_first) :]
    parts = [*positional, *([f"*{arguments.vararg.arg}"] if arguments.vararg else [])]
    parts += [f"{arg.arg}={arg.arg}" for arg in arguments.kwonlyargs]
    return [*parts, *([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])]
