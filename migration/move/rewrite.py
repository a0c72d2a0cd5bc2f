"""Text of one moved method and of the stub that it leaves behind: byte edits at exact positions."""

from __future__ import annotations

import bisect
import tokenize
from collections.abc import Callable, Sequence
from functools import lru_cache

from migration.code.facts import MethodFacts, is_static
from migration.code.source import Source
from migration.code.structure import FunctionNode, Method
from migration.move.rules import ASYNC_CONTEXT_MANAGERS, CONTEXT_MANAGERS, decorator_names, yields
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
            body = text.lstrip(b" \t")
            if line in source.string_lines:
                parts.append(text)
            elif not body.strip():
                parts.append(source.eol)
            else:
                lead = text[: len(text) - len(body)]
                inner = lead.removeprefix(base)
                depth = b"    " if lead.startswith(base) else b""
                parts.append(depth + inner.replace(b"\t", b"    ") + body)
    if not parts[-1].endswith(source.eol):
        parts.append(source.eol)
    return b"".join(parts)


def moved_text(
    source: Source,
    method: Method,
    facts: MethodFacts,
    receiver: Callable[[int, int], str | None],
    lazy_import: str | None,
) -> bytes:
    """The method as it stands in the handler, indented by four spaces.

    `receiver(line, column)` names the handle through which the self at that position goes, None to
    leave it; `lazy_import` is a statement to put first in the body.
    """
    insertions: dict[int, list[tuple[int, bytes]]] = {}
    for use in facts.uses:
        if (handle := receiver(use.line, use.column)) is not None:
            column = use.column + len((facts.self_name or "").encode())
            insertions.setdefault(use.line, []).append((column, f"._{handle}".encode()))
    base = source.indent_of(method.node.lineno)
    prologue: dict[int, list[bytes]] = {}
    if lazy_import is not None:
        line, inside = _prologue(source, method.node)
        if inside is None:
            indent = source.indent_of(method.node.body[-1].lineno)
            prologue[line] = [indent + lazy_import.encode() + source.eol]
            if not source.lines[line - 1].lstrip().startswith((b"from ", b"import ", source.eol)):
                prologue[line].append(source.eol)
        else:
            insertions.setdefault(line, []).append((inside, f"{lazy_import}; ".encode()))

    def edit(line: int) -> list[bytes]:
        text = source.lines[line - 1]
        for column, inserted in sorted(insertions.get(line, ()), reverse=True):
            text = text[:column] + inserted + text[column:]
        return [*prologue.get(line, ()), text]

    return reindent(source, method.block_start, method.block_end, base, edit)


@lru_cache(maxsize=4)
def _logical_ends(source: Source) -> tuple[int, ...]:
    return tuple(token.start[0] for token in source.tokens if token.type == tokenize.NEWLINE)


def header_end(source: Source, node: FunctionNode) -> int:
    """Last line of the logical line that the definition begins with."""
    ends = _logical_ends(source)
    return ends[bisect.bisect_left(ends, node.lineno)]


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
    depth = 0
    cuts: list[tuple[int, int]] = []
    start = source.offset(node.lineno, node.col_offset)
    end = start
    for token in source.tokens[_first_token(source, node.lineno) :]:
        if token.type == tokenize.COMMENT:
            text = source.lines[token.start[0] - 1]
            column = len(text.decode()[: token.start[1]].encode())
            lead = text[:column].rstrip(b" \t")
            begin = source.offset(token.start[0], len(lead))
            stop = source.offset(token.start[0], len(text.rstrip(b"\r\n")))
            cuts.append(
                (begin, stop) if lead else (source.offset(token.start[0]), source.offset(token.start[0] + 1))
            )
        elif token.string in ("(", "[", "{"):
            depth += 1
        elif token.string in (")", "]", "}"):
            depth -= 1
        elif token.string == ":" and token.type == tokenize.OP and depth == 0:
            column = len(source.lines[token.start[0] - 1].decode()[: token.start[1]].encode())
            end = source.offset(token.start[0], column)
            break
    parts: list[bytes] = []
    for begin, stop in cuts:
        parts.append(source.data[start:begin])
        start = stop
    return b"".join((*parts, source.data[start:end]))


@lru_cache(maxsize=4)
def _token_lines(source: Source) -> tuple[int, ...]:
    return tuple(token.start[0] for token in source.tokens)


def _first_token(source: Source, line: int) -> int:
    return bisect.bisect_left(_token_lines(source), line)


def stub_text(source: Source, method: Method, facts: MethodFacts, recipe: Recipe) -> bytes:
    """The delegating method that stays on the worker, with the exact signature of the original."""
    node = method.node
    indent = source.indent_of(method.first_line).decode()
    unit = _indent_unit(source, node, indent)
    eol = source.eol.decode()
    decorators = decorator_names(method)
    kept = [
        f"{indent}@{source.segment(expression).decode()}{eol}"
        for expression, name in zip(node.decorator_list, decorators, strict=True)
        if name == "staticmethod" or name in CONTEXT_MANAGERS | ASYNC_CONTEXT_MANAGERS
    ]
    target = (
        recipe.handler_class if is_static(node) else f"{recipe.handler_class}.for_worker({facts.self_name})"
    )
    arguments = _forwarded(node, skip_first=not is_static(node))
    inner = indent + unit

    def statement(prefix: str, suffix: str) -> str:
        line = f"{inner}{prefix}{target}.{node.name}({', '.join(arguments)}){suffix}{eol}"
        if len(line.expandtabs(4).rstrip()) <= WIDTH:
            return line
        wrapped = "".join(f"{inner}{unit}{argument},{eol}" for argument in arguments)
        return f"{inner}{prefix}{target}.{node.name}({eol}{wrapped}{inner}){suffix}{eol}"

    asynchronous = type(node).__name__ == "AsyncFunctionDef"
    if (CONTEXT_MANAGERS | ASYNC_CONTEXT_MANAGERS) & set(decorators):
        body = (
            statement("async with " if asynchronous else "with ", " as value:")
            + f"{inner}{unit}yield value{eol}"
        )
    elif asynchronous:
        body = statement("return await ", "")
    elif yields(method):
        body = statement("return (yield from ", ")")
    else:
        body = statement("return ", "")
    return "".join((*kept, f"{indent}{signature_text(source, node).decode()}:{eol}", body)).encode()


def _indent_unit(source: Source, node: FunctionNode, indent: str) -> str:
    first = node.body[0].lineno
    inner = source.indent_of(first).decode() if first > header_end(source, node) else ""
    return inner.removeprefix(indent) or ("\t" if "\t" in indent else "    ")


def _forwarded(node: FunctionNode, *, skip_first: bool) -> list[str]:
    arguments = node.args
    positional = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args)][int(skip_first) :]
    parts = [*positional, *([f"*{arguments.vararg.arg}"] if arguments.vararg else [])]
    parts += [f"{arg.arg}={arg.arg}" for arg in arguments.kwonlyargs]
    return [*parts, *([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])]
