"""The text of a split method: calls in place of the runs, the helpers below, every other byte as it was."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from migration.code.source import Source
from migration.code.structure import FunctionNode
from migration.split.runs import Run
from migration.split.scope import bound_names

_HINT_WORDS, _HINT_LENGTH = 4, 32
#: Words that say nothing in a name.
_DULL = frozenset(
    ("a", "an", "and", "are", "as", "be", "by", "for", "from", "has", "have", "if", "in", "is", "it", "of")
).union(("on", "only", "or", "our", "so", "that", "the", "then", "this", "to", "we", "which", "will", "with"))


@dataclass(frozen=True)
class Style:
    """How the method writes: indentation of its definition and one level more, line end, width in columns."""

    source: Source
    node: FunctionNode
    receiver: str
    prefix: str
    indent: bytes
    body_indent: bytes
    width: int

    @property
    def is_classmethod(self) -> bool:
        return any(isinstance(d, ast.Name) and d.id == "classmethod" for d in self.node.decorator_list)

    @property
    def unit(self) -> bytes:
        return self.body_indent.removeprefix(self.indent) or b"    "

    @cached_property
    def annotations(self) -> Mapping[str, str]:
        """Annotations of the parameters that the method never binds again."""
        arguments = self.node.args
        rebound = {
            name
            for part in ast.walk(self.node)
            for name in (
                [part.id]
                if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)
                else bound_names(part)
            )
        }
        return {
            arg.arg: _source(self, arg.annotation)
            for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            if arg.arg not in rebound and _is_plain(self.node, arg.annotation)
        }

    def longest_name(self, run: Run) -> int:
        return len(helper_name(self, 99, run))

    def fits(self, line: bytes) -> bool:
        return len(line.expandtabs(4).decode()) <= self.width


def helper_name(style: Style, number: int, run: Run) -> str:
    return "_".join(part for part in (style.prefix, str(number), _hint(style.source, run)) if part)


def _hint(source: Source, run: Run) -> str:
    """A few words of the comment above the run; without one, what it binds or the first thing it calls."""
    for line in range(run.first_line, run.items[0].first_line):
        text = source.lines[line - 1].decode().lower()
        for clause in re.split(r"[.,:;()]", text):
            words = [word for word in re.findall(r"[a-z0-9]+", clause) if word not in _DULL]
            if found := _slug(words):
                return found
    if run.results:
        return _slug(run.results[:2])
    for item in run.items:
        for part in ast.walk(item.node):
            if isinstance(part, ast.Call):
                name = (
                    part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
                )
                if found := _slug([name.strip("_").lower()]):
                    return found
    return ""


def _slug(words: Sequence[str]) -> str:
    slug = ""
    for word in words[:_HINT_WORDS]:
        word = re.sub(r"[^a-z0-9_]", "", word.lower()).strip("_")
        if word and len(slug) + len(word) < _HINT_LENGTH:
            slug += f"_{word}" if slug else word
    return slug


def _joined(parts: Sequence[str], before: str, after: str, indent: bytes, style: Style) -> list[bytes]:
    """`before` + parts + `after` on one line, or the parts on one line of their own, or one a line."""
    eol = style.source.eol
    single = indent + f"{before}{', '.join(parts)}{after}".encode()
    if style.fits(single) or not parts:
        return [single + eol]
    inner = indent + style.unit
    middle = inner + ", ".join(parts).encode()
    if style.fits(middle):
        rows = [middle + eol]
    else:
        rows = [inner + f"{part},".encode() + eol for part in parts]
    return [indent + before.encode() + eol, *rows, indent + after.encode() + eol]


def call_lines(run: Run, name: str, style: Style) -> list[bytes]:
    """The statement that stands in place of the run."""
    call = f"{'await ' if run.awaits else ''}{style.receiver}.{name}("
    indent = run.block.indent
    if run.returns:
        return _joined(run.parameters, f"return {call}", ")", indent, style)
    if not run.results:
        return _joined(run.parameters, call, ")", indent, style)
    targets = ", ".join(run.results)
    if style.fits(indent + f"{targets} = {call}".encode()):
        return _joined(run.parameters, f"{targets} = {call}", ")", indent, style)
    start = _joined([*run.results], "(", f") = {call}", indent, style)
    if not run.parameters:
        return [*start[:-1], start[-1].rstrip() + b")" + style.source.eol]
    rest = _joined(run.parameters, start[-1].strip().decode(), ")", indent, style)
    return [*start[:-1], *rest]


def definition_lines(run: Run, name: str, style: Style) -> list[bytes]:
    """The head of the helper. Parameters of the method keep their annotations while they keep their objects."""
    notes = style.annotations
    parameters = [f"{p}: {notes[p]}" if p in notes else p for p in run.parameters]
    returns = ""
    if notes or style.node.returns is not None:
        if run.returns:
            plain = _is_plain(style.node, style.node.returns)
            returns = f" -> {_source(style, style.node.returns)}" if plain else ""
        elif not run.results:
            returns = " -> None"
    found = [style.indent + b"@classmethod" + style.source.eol] if style.is_classmethod else []
    word = "async def" if run.awaits else "def"
    return found + _joined(
        [style.receiver, *parameters], f"{word} {name}(", f"){returns}:", style.indent, style
    )


def return_lines(run: Run, style: Style) -> list[bytes]:
    if run.returns or not run.results:
        return []
    line = style.body_indent + f"return {', '.join(run.results)}".encode()
    if style.fits(line):
        return [line + style.source.eol]
    return _joined(run.results, "return (", ")", style.body_indent, style)


def helper_overhead(run: Run, style: Style) -> int:
    """Lines of a helper besides those of its run."""
    return len(definition_lines(run, "x" * style.longest_name(run), style)) + len(return_lines(run, style))


def _is_plain(node: FunctionNode, annotation: ast.expr | None) -> bool:
    """An annotation of one line that means the same when it is evaluated again, below the method."""
    if annotation is None or annotation.lineno != annotation.end_lineno:
        return False
    kinds = ast.Name | ast.Attribute | ast.Subscript | ast.Constant | ast.BinOp | ast.Tuple | ast.List
    renewed = {node.name, *(parameter.name for parameter in getattr(node, "type_params", ()))}
    parts = [part for part in ast.walk(annotation) if isinstance(part, ast.expr)]
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return all(isinstance(part, kinds) for part in parts) and not names & renewed


def _source(style: Style, node: ast.expr | None) -> str:
    return style.source.segment(node).decode() if node is not None else ""
