"""A Python file as bytes with its tree, its comments and byte offsets.

Everything downstream edits *bytes* at positions taken from `ast`, so that what is not edited is
identical by construction. Column offsets of `ast` count UTF-8 bytes, those of `tokenize` characters.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from migration.errors import MigrationError

_FSTRING_START = getattr(tokenize, "FSTRING_START", -1)
_FSTRING_END = getattr(tokenize, "FSTRING_END", -1)


@dataclass(frozen=True)
class Comment:
    """One comment token. `own_line` is False for a comment that follows code."""

    line: int
    column: int
    text: str
    own_line: bool


@dataclass(frozen=True)
class Edit:
    """Replace the bytes [start, end) by `text`."""

    start: int
    end: int
    text: bytes


class Source:
    """One parsed file; raises MG301/MG302 where it cannot be cut safely."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data
        try:
            data.decode("utf-8")
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        except (UnicodeDecodeError, SyntaxError) as error:
            raise MigrationError("MG302", f"{path}: not UTF-8: {error}") from error
        if encoding not in ("utf-8", "utf-8-sig"):
            raise MigrationError("MG302", f"{path}: declared encoding is {encoding}")
        crlf = data.count(b"\r\n")
        if data.count(b"\r") != crlf or crlf not in (0, data.count(b"\n")):
            raise MigrationError("MG302", f"{path}: line ends are mixed")
        self.eol = b"\r\n" if crlf else b"\n"
        try:
            self.tree = ast.parse(data)
        except (SyntaxError, ValueError) as error:
            raise MigrationError("MG301", f"{path}: {error}") from error

    @cached_property
    def lines(self) -> tuple[bytes, ...]:
        """Physical lines with their line ends; line n of `ast` is `lines[n - 1]`."""
        parts = self.data.split(b"\n")
        return tuple(part + b"\n" for part in parts[:-1]) + ((parts[-1],) if parts[-1] else ())

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line))
        if self.data.startswith(b"\xef\xbb\xbf"):
            starts[0] = 3
        return tuple(starts)

    def offset(self, line: int, column: int = 0) -> int:
        """Byte offset of a position as `ast` gives it (1-based line, column in bytes)."""
        return self._starts[line - 1] + column

    def segment(self, node: ast.expr | ast.stmt) -> bytes:
        """The bytes of one node, without its decorators."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.data[
            self.offset(node.lineno, node.col_offset) : self.offset(node.end_lineno, node.end_col_offset)
        ]

    @cached_property
    def tokens(self) -> tuple[tokenize.TokenInfo, ...]:
        return tuple(tokenize.tokenize(io.BytesIO(self.data).readline))

    @cached_property
    def comments(self) -> tuple[Comment, ...]:
        return tuple(
            Comment(token.start[0], token.start[1], token.string, not token.line[: token.start[1]].strip())
            for token in self.tokens
            if token.type == tokenize.COMMENT
        )

    @cached_property
    def string_lines(self) -> frozenset[int]:
        """Lines that begin inside a string literal: their indentation is data."""
        inside: set[int] = set()
        starts: list[int] = []
        for token in self.tokens:
            if token.type == _FSTRING_START:
                starts.append(token.start[0])
            elif token.type == _FSTRING_END:
                inside.update(range(starts.pop() + 1, token.end[0] + 1))
            elif token.type == tokenize.STRING:
                inside.update(range(token.start[0] + 1, token.end[0] + 1))
        return frozenset(inside)

    def indent_of(self, line: int) -> bytes:
        text = self.lines[line - 1]
        return text[: len(text) - len(text.lstrip(b" \t\f"))]


@lru_cache(maxsize=6)
def read_source(path: str, data: bytes) -> Source:
    """The parsed file; the same bytes are parsed once."""
    return Source(path, data)


def apply_edits(data: bytes, edits: Iterable[Edit]) -> bytes:
    """Apply edits that do not overlap; an insertion is an edit with start == end."""
    parts: list[bytes] = []
    position = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if edit.start < position:
            raise ValueError(f"edits overlap at byte {edit.start}")
        parts += (data[position : edit.start], edit.text)
        position = edit.end
    return b"".join((*parts, data[position:]))
