"""The new text of the method and its helpers from the pieces that were chosen."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from migration.code.source import Source
from migration.code.structure import Method
from migration.split.choose import Piece
from migration.split.text import Style, call_lines, definition_lines, helper_name, return_lines


@dataclass(frozen=True)
class Helper:
    """A helper as it will stand: its name, what crosses its ends, the lines it takes from the original."""

    name: str
    parameters: tuple[str, ...]
    results: tuple[str, ...]
    returns: bool
    awaits: bool
    first_line: int
    last_line: int
    lines: int


def first_number(data: bytes, prefix: str) -> int:
    """The number after the highest one that a name with this prefix has in the file already."""
    used = re.findall(rb"\b" + re.escape(prefix).encode() + rb"_(\d+)(?:_|\b)", data)
    return 1 + max(map(int, used), default=0)


def assemble(method: Method, pieces: Sequence[Piece], style: Style) -> tuple[bytes, tuple[Helper, ...]]:
    """(bytes in place of the method's lines, helpers in order). The lines are those up to `block_end`."""
    source, eol = style.source, style.source.eol
    numbered = list(_numbered(pieces, first_number(source.data, style.prefix)))
    names = {id(piece): helper_name(style, number, piece.run) for number, piece in numbered}
    parts = [text for text, _ in _lines(style, names, method.first_line, method.block_end, pieces)]
    helpers: list[Helper] = []
    for _, piece in numbered:
        run, name = piece.run, names[id(piece)]
        body = _lines(style, names, run.first_line, run.last_line, piece.inner)
        text = [
            *definition_lines(run, name, style),
            *(_moved(line, run.block.indent, style.body_indent) if code else line for line, code in body),
            *return_lines(run, style),
        ]
        parts += [eol, *text]
        helpers.append(
            Helper(
                name,
                run.parameters,
                run.results,
                run.returns,
                run.awaits,
                run.first_line,
                run.last_line,
                len(text),
            )
        )
    ends = (b"\n", b"\r")
    whole = b"".join(part if part.endswith(ends) else part + eol for part in parts)
    if not source.lines[method.block_end - 1].endswith(ends):
        whole = whole.removesuffix(eol)
    return whole, tuple(helpers)


def _numbered(pieces: Sequence[Piece], start: int) -> Iterator[tuple[int, Piece]]:
    """Pieces in the order of their lines, the outer before the inner."""
    ordered: list[Piece] = []

    def visit(some: Sequence[Piece]) -> None:
        for piece in sorted(some, key=lambda piece: piece.run.first_line):
            ordered.append(piece)
            visit(piece.inner)

    visit(pieces)
    return enumerate(ordered, start)


def _lines(
    style: Style, names: dict[int, str], first: int, last: int, pieces: Sequence[Piece]
) -> Iterator[tuple[bytes, bool]]:
    """(line, is it code that may be indented otherwise?) with calls in place of `pieces`."""
    source: Source = style.source
    starts = {piece.run.first_line: piece for piece in pieces}
    line = first
    while line <= last:
        piece = starts.get(line)
        if piece is None:
            yield source.lines[line - 1], line not in source.string_lines
            line += 1
        else:
            yield from ((text, True) for text in call_lines(piece.run, names[id(piece)], style))
            line = piece.run.last_line + 1


def _moved(line: bytes, base: bytes, target: bytes) -> bytes:
    """`line` at another depth; one that is blank or stands further left than its block stays as it is.

    A form feed in the indentation, where the tokenizer starts to count anew, goes.
    """
    code = line.lstrip(b" \t\f")
    lead = line[: len(line) - len(code)].rpartition(b"\f")[2]
    if not code.strip() or not lead.startswith(base):
        return line
    return target + lead.removeprefix(base) + code
