"""A Python file as bytes with its tree, its comments and byte offsets.

Everything downstream edits *bytes* at positions taken from `ast`, so that what is not edited is
identical by construction. Columns count UTF-8 bytes, as those of `ast` do.
"""

from __future__ import annotations

import ast
import sys
import tokenize
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from migration.code.encoding import BOM, coding_line, read_text
from migration.code.literals import Mark, is_formatted, marks, prefix, spans
from migration.code.positions import GUESSED, Places, correct, labelled_fields
from migration.code.syntax import parse

#: From 3.12 on the fields of an f-string hold code with strings and comments of its own.
_NESTED = sys.version_info >= (3, 12)


@dataclass(frozen=True)
class Comment:
    """One comment. `own_line` is False for a comment that follows code; `column` counts bytes."""

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
    """One parsed file; raises MG301/MG302/MG316/MG317 where it cannot be read.

    `data` is the text in UTF-8, which every offset and edit is about; `raw` is the file as it is.
    The two differ only where a coding line names another encoding: `restore` turns an edited text
    back into a file. Line ends are kept as they are; `eol` is the one that most lines have.
    """

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.raw = data
        self._text = read_text(path, data)
        self.data = self._text.data
        self.eol = _usual_line_end(self.data)
        self._tree = parse(path, self.data)

    def restore(self, data: bytes) -> bytes:
        """The file for an edited text, in the encoding of this one; MG302 where it cannot spell it."""
        return self._text.restore(data)

    @cached_property
    def tree(self) -> ast.Module:
        """The tree with exact positions everywhere, inside f-strings as well."""
        if GUESSED and self._scan.field_lines:
            correct(self._tree, self._places, self._scan.field_lines)
        return self._tree

    @cached_property
    def lines(self) -> tuple[bytes, ...]:
        """Physical lines with their line ends; line n of `ast` is `lines[n - 1]`."""
        return tuple(self.data.splitlines(keepends=True))

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line))
        if self.data.startswith(BOM):
            starts[0] = len(BOM)
        return tuple(starts)

    @cached_property
    def _places(self) -> Places:
        return Places(self.data, self._starts)

    def offset(self, line: int, column: int = 0) -> int:
        """Byte offset of a position as `ast` gives it (1-based line, column in bytes)."""
        return self._starts[line - 1] + column

    def place(self, offset: int) -> tuple[int, int]:
        """The (line, column) of a byte offset: the inverse of `offset`."""
        return self._places.place(offset)

    def segment(self, node: ast.expr | ast.stmt) -> bytes:
        """The bytes of one node, without its decorators."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.data[
            self.offset(node.lineno, node.col_offset) : self.offset(node.end_lineno, node.end_col_offset)
        ]

    def labelled_fields(self, node: ast.expr | ast.stmt) -> tuple[ast.FormattedValue, ...]:
        """The fields below a node of `tree` that show their own source: `{x=}`, all of a t-string."""
        decorators = getattr(node, "decorator_list", ())
        first = min(part.lineno for part in (node, *decorators))
        last = node.end_lineno or node.lineno
        if not any(first <= line <= last for line in self._scan.field_lines):
            return ()
        return labelled_fields(node, self._places)

    def marks(self, line: int) -> Iterator[Mark]:
        """Brackets, colons, comments and ends of logical lines from the statement that begins on `line` on."""
        return marks(self.data, self.offset(line), nested=_NESTED)

    def logical_end(self, line: int) -> int:
        """Last line of the logical line that begins on `line`."""
        for mark in self.marks(line):
            if not mark.text:
                return self.place(mark.start)[0]
        return len(self.lines)

    def tokens_from(self, line: int) -> Iterator[tokenize.TokenInfo]:
        """Tokens from the statement that begins on `line` on, as far as they are asked for.

        Columns count characters. To be read to the end of that statement, no further: the tokenizer
        does not know the indentation that it is in.
        """
        texts = (text.decode("utf-8-sig").rstrip("\r\n") + "\n" for text in self.lines[line - 1 :])
        for token in tokenize.generate_tokens(lambda: next(texts, "")):
            (first, column), (last, end) = token.start, token.end
            yield token._replace(start=(first + line - 1, column), end=(last + line - 1, end))

    @cached_property
    def tokens(self) -> tuple[tokenize.TokenInfo, ...]:
        """All tokens, at 20 us a line: `marks`, `comments` and `string_lines` need a tenth of that."""
        return tuple(self.tokens_from(1))

    @cached_property
    def _scan(self) -> _Scan:
        return _scan(self.data, self._starts)

    @property
    def comments(self) -> tuple[Comment, ...]:
        return self._scan.comments

    @property
    def string_lines(self) -> frozenset[int]:
        """Lines that begin inside a string literal: their indentation is data."""
        return self._scan.string_lines

    @cached_property
    def head_lines(self) -> int:
        """How many lines at the top nothing may stand above: shebang, coding line, a block of comments
        that a blank line ends."""
        texts = [line.removeprefix(BOM).strip() for line in self.lines]
        count = next((i for i, text in enumerate(texts) if not text.startswith(b"#")), len(texts))
        if count == len(texts) or not texts[count]:
            return count
        return max(coding_line(self.data), int(texts[0].startswith(b"#!")))

    def indent_of(self, line: int) -> bytes:
        """Spaces and tabs that a line begins with; after a form feed, where the tokenizer starts anew."""
        text = self.lines[line - 1]
        return text[: len(text) - len(text.lstrip(b" \t\f"))].rpartition(b"\f")[2]


def _usual_line_end(data: bytes) -> bytes:
    both = data.count(b"\r\n")
    counts = {b"\n": data.count(b"\n") - both, b"\r\n": both, b"\r": data.count(b"\r") - both}
    return max(counts, key=lambda end: counts[end])


@dataclass(frozen=True)
class _Scan:
    comments: tuple[Comment, ...]
    string_lines: frozenset[int]
    field_lines: tuple[int, ...]


def _scan(data: bytes, starts: tuple[int, ...]) -> _Scan:
    comments: list[Comment] = []
    inside: set[int] = set()
    fields: list[int] = []
    for span in spans(data, nested=_NESTED):
        line = bisect_right(starts, span.start)
        if span.comment:
            begin = starts[line - 1]
            own = not data[begin : span.start].strip()
            comments.append(Comment(line, span.start - begin, data[span.start : span.end].decode(), own))
            continue
        last = bisect_right(starts, span.end - 1)
        if last > line:
            inside.update(range(line + 1, last + 1))
        if is_formatted(prefix(data, span.start)) and b"{" in data[span.start : span.end]:
            fields.append(line)
    return _Scan(tuple(comments), frozenset(inside), tuple(fields))


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
