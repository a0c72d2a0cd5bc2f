"""Strings, comments, brackets and line ends of Python text, found by bytes, without a token for every word.

`tokenize` needs 0.12 s for 7,000 lines to say where strings and comments are; these patterns need a tenth.
The text must be one that parses. A replacement field of an f-string is read by the rules of Python 3.12
(quotes, backslashes, comments and line ends allowed); whatever 3.11 accepts reads the same under them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_NEWLINE = rb"\r\n|\r|\n"
_BODIES = {
    b'"""': rb'(?:[^"\\]|\\[\s\S]|"(?!""))*+"""',
    b"'''": rb"(?:[^'\\]|\\[\s\S]|'(?!''))*+'''",
    b'"': rb'(?:[^"\\\r\n]|\\(?:\r\n|[\s\S]))*+"',
    b"'": rb"(?:[^'\\\r\n]|\\(?:\r\n|[\s\S]))*+'",
}
_STRING = b"|".join(quote + body for quote, body in _BODIES.items())
_COMMENT = rb"#[^\r\n]*+"
# A quote alone opens an f-string whose field holds a line end.
_WORDS = re.compile(b"|".join((_COMMENT, _STRING, b"['\"]")))
_LAYOUT = re.compile(
    b"|".join((_COMMENT, _STRING, rb"[()\[\]{}:'\"]", rb"\\(?:" + _NEWLINE + b")", _NEWLINE))
)
_BETWEEN = re.compile(rb"(?:\s|\\|" + _COMMENT + rb")*+")
_IDENTIFIER = frozenset(b"_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") | set(
    range(128, 256)
)
_PREFIXES = frozenset((b"r", b"u", b"b", b"br", b"rb", b"f", b"fr", b"rf", b"t", b"tr", b"rt"))
_TEXT = re.compile(rb"[\\{}'\"]")
_CODE = re.compile(rb"[()\[\]{}!:=<>'\"#]")
_CONVERSION = re.compile(rb"!\s*\w+")


@dataclass(frozen=True)
class Span:
    """A comment (`#...`) or a string literal without its prefix: bytes [start, end)."""

    comment: bool
    start: int
    end: int


@dataclass(frozen=True)
class Field:
    """A replacement field `{expression=!r:spec}` by byte offsets.

    [start, end) covers the braces, [expression, expression_end) what is evaluated, with the spaces
    around it; `spec` is what stands after the colon, None without one. `fields` are those of the spec.
    """

    start: int
    end: int
    expression: int
    expression_end: int
    labelled: bool
    spec: tuple[int, int] | None
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Literal:
    """One string literal, prefix and all. `formatted` for f-strings and t-strings."""

    start: int
    end: int
    formatted: bool
    fields: tuple[Field, ...]


class Unreadable(ValueError):
    """The bytes are not the literal they were taken for."""


def spans(data: bytes, *, nested: bool) -> Iterator[Span]:
    """Comments and strings in order. `nested` reads f-strings as Python 3.12 does, with code inside."""
    search = _WORDS.search
    position = 0
    while (match := search(data, position)) is not None:
        start, position = match.span()
        if data[start] == 35:
            yield Span(True, start, position)
            continue
        if nested and _may_nest(match[0]) and is_formatted(prefix(data, start)):
            position = read_literal(data, start).end
        yield Span(False, start, position)


def _may_nest(string: bytes) -> bool:
    return b"{" in string or len(string) == 1


def prefix(data: bytes, quote: int) -> bytes:
    """The prefix of the string that opens at `quote`, in lower case."""
    start = quote
    while start and quote - start < 3 and data[start - 1] in _IDENTIFIER:
        start -= 1
    word = data[start:quote].lower()
    return word if word in _PREFIXES else b""


def is_formatted(word: bytes) -> bool:
    return b"f" in word or b"t" in word


@dataclass(frozen=True)
class Mark:
    """A bracket, a colon, a comment or the end of a logical line (`text` is then b""), with its bracket depth."""

    text: bytes
    start: int
    end: int
    depth: int


def marks(data: bytes, start: int, *, nested: bool) -> Iterator[Mark]:
    """What gives a statement its shape, from the beginning of its first line on.

    A closing bracket has the depth of its opening one. Blank lines and comment lines end nothing.
    """
    depth, position, begun = 0, start, start
    while (match := _LAYOUT.search(data, position)) is not None:
        at, position = match.span()
        text = match[0]
        if text[0] in b"([{":
            yield Mark(text, at, position, depth)
            depth += 1
        elif text[0] in b")]}":
            depth -= 1
            yield Mark(text, at, position, depth)
        elif text == b":":
            yield Mark(text, at, position, depth)
        elif text[0] == 35:
            yield Mark(text, at, position, depth)
            if not depth and not data[begun:at].strip():
                begun = position
        elif text[0] in b"\r\n":
            if not depth and data[begun:at].strip():
                yield Mark(b"", at, position, 0)
            if not depth:
                begun = position
        elif text[0] in b"'\"" and nested and _may_nest(text) and is_formatted(prefix(data, at)):
            position = read_literal(data, at).end


def read_literals(data: bytes, start: int, end: int) -> Iterator[Literal]:
    """The literals of an implicit concatenation; [start, end) holds nothing else but space and comments."""
    position = start
    while position < end:
        quote = position
        while data[quote] in _IDENTIFIER:
            quote += 1
        literal = read_literal(data, quote)
        yield literal
        gap = _BETWEEN.match(data, literal.end)
        assert gap is not None
        position = gap.end()


def read_literal(data: bytes, quote_at: int) -> Literal:
    """The literal whose first quote stands at `quote_at`; raises Unreadable where there is none."""
    word = prefix(data, quote_at)
    quote = data[quote_at : quote_at + 1]
    if quote not in (b"'", b'"'):
        raise Unreadable(f"no string at byte {quote_at}")
    if data.startswith(quote * 3, quote_at):
        quote *= 3
    begin = quote_at - len(word)
    body = quote_at + len(quote)
    if not is_formatted(word):
        match = _PLAIN[quote].match(data, body)
        if match is None:
            raise Unreadable(f"string at byte {quote_at} does not end")
        return Literal(begin, match.end(), False, ())
    end, fields = _text(data, body, quote, raw=b"r" in word)
    return Literal(begin, end + len(quote), True, fields)


_PLAIN = {quote: re.compile(body) for quote, body in _BODIES.items()}


def _text(data: bytes, position: int, quote: bytes | None, *, raw: bool) -> tuple[int, tuple[Field, ...]]:
    """Literal text up to its closing quote, or up to the brace that ends a format spec (no quote)."""
    fields: list[Field] = []
    while (match := _TEXT.search(data, position)) is not None:
        position = match.start()
        character = match[0]
        if character == b"\\":
            if not raw and data.startswith(b"N{", position + 1):
                position = _after(data, b"}", position)
            else:
                # A backslash never takes the meaning from a brace.
                position += 1 if data[position + 1 : position + 2] in (b"{", b"}") else 2
        elif character in (b"'", b'"'):
            if quote is not None and data.startswith(quote, position):
                return position, tuple(fields)
            position += 1
        elif quote is not None and data[position + 1 : position + 2] == character:
            position += 2
        elif character == b"{":
            fields.append(_field(data, position, raw=raw))
            position = fields[-1].end
        elif quote is None:
            return position, tuple(fields)
        else:
            raise Unreadable(f"single brace at byte {position}")
    raise Unreadable("string does not end")


def _after(data: bytes, character: bytes, position: int) -> int:
    found = data.find(character, position)
    if found < 0:
        raise Unreadable(f"no {character.decode()} after byte {position}")
    return found + 1


def _field(data: bytes, brace: int, *, raw: bool) -> Field:
    position = _expression_end(data, brace + 1)
    end = position
    labelled = data[position] == 61
    if labelled:
        position = _skip(data, position + 1)
    if match := _CONVERSION.match(data, position):
        position = _skip(data, match.end())
    spec: tuple[int, int] | None = None
    fields: tuple[Field, ...] = ()
    if data[position : position + 1] == b":":
        begin = position + 1
        position, fields = _text(data, begin, None, raw=raw)
        spec = (begin, position)
    if data[position : position + 1] != b"}":
        raise Unreadable(f"field at byte {brace} does not end")
    return Field(brace, position + 1, brace + 1, end, labelled, spec, fields)


def _skip(data: bytes, position: int) -> int:
    match = _BETWEEN.match(data, position)
    assert match is not None
    return match.end()


def _expression_end(data: bytes, position: int) -> int:
    """Where `=`, `!`, `:` or `}` ends the expression that begins at `position`."""
    depth = 0
    while (match := _CODE.search(data, position)) is not None:
        position = match.start()
        character = match[0]
        if character in (b"'", b'"'):
            position = read_literal(data, position).end
        elif character == b"#":
            position = _skip(data, position)
        elif character in b"([{":
            depth += 1
            position += 1
        elif depth:
            depth -= character in b")]}"
            position += 1
        elif character in (b"!", b"=", b"<", b">") and data[position + 1 : position + 2] == b"=":
            position += 2
        elif character in b"<>":
            position += 1
        else:
            return position
    raise Unreadable("field does not end")
