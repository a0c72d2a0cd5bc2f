"""The replacement fields of f-strings: where their nodes stand, and which show their own source.

Before 3.12 the parser sees an f-string as one token and guesses the places inside it; it is wrong for
an f-string within a field of another. Here each field is found in the source bytes, its expression is
parsed again on its own, and the positions are carried over to the nodes of the tree.
"""

from __future__ import annotations

import ast
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from migration.code.literals import Field, Unreadable, read_literals

#: Only the parser before 3.12 needs the correction.
GUESSED = sys.version_info < (3, 12)
_WORD = rb"[A-Za-z_\x80-\xff][\w\x80-\xff]*"
_DOTTED = re.compile(rb"[ \t]*(" + _WORD + rb"(?:\." + _WORD + rb")*)[ \t]*")
#: An Interpolation of a t-string has the attributes of a FormattedValue.
_FIELDS = (ast.FormattedValue, getattr(ast, "Interpolation", ast.FormattedValue))
_FORMATTED = tuple(getattr(ast, name) for name in ("JoinedStr", "TemplateStr") if hasattr(ast, name))


class Places:
    """Byte offsets of one text and the (line, column) pairs that `ast` uses for them."""

    def __init__(self, data: bytes, starts: Sequence[int]) -> None:
        self.data = data
        self._starts = starts

    def offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1]

    def span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self.offset(node.lineno, node.col_offset),
            self.offset(node.end_lineno, node.end_col_offset),
        )


def correct(tree: ast.Module, places: Places, lines: Iterable[int]) -> None:
    """Give every node inside an f-string its true position.

    `lines` are those on which strings with fields begin. Text parts keep the place of the whole
    string. An f-string that cannot be read back (none is known) has all its nodes at its first quote,
    so that no name is found at the place of its node.
    """
    round_ = list(_outermost(tree, sorted(set(lines))))
    while round_:
        round_ = _correct_round(round_, places)


def _outermost(tree: ast.Module, lines: list[int]) -> Iterator[ast.JoinedStr]:
    """The f-strings that stand in no other, found without visiting statements that hold none."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.JoinedStr):
            yield node
            continue
        for child in ast.iter_child_nodes(node):
            first, last = getattr(child, "lineno", 0), getattr(child, "end_lineno", sys.maxsize)
            for decorator in getattr(child, "decorator_list", ()):
                first = min(first, decorator.lineno)
            if bisect_left(lines, first) < bisect_right(lines, last):
                stack.append(child)


def labelled_fields(node: ast.AST, places: Places) -> tuple[ast.FormattedValue, ...]:
    """The fields below `node` that show their own source text: `{x=}`, and every field of a t-string.

    Positions must be exact. One that cannot be read back is taken to show all that is in it.
    """
    found: list[ast.FormattedValue] = []
    stack: list[ast.AST] = [node]
    while stack:
        current = stack.pop()
        if not isinstance(current, _FORMATTED):
            stack += ast.iter_child_nodes(current)
            continue
        try:
            pairs = _read(current, places)
        except Unreadable:
            found += [part for part in ast.walk(current) if isinstance(part, _FIELDS)]
            continue
        template = not isinstance(current, ast.JoinedStr)
        found += (value for value, field in pairs if field.labelled or template)
        stack += (value.value for value, _ in pairs)
    return tuple(found)


_Pair = tuple[ast.FormattedValue, Field]


def _read(joined: ast.expr, places: Places) -> list[_Pair]:
    """Each field of an f-string with its bytes, those in format specs too; Unreadable if they disagree."""
    literals = read_literals(places.data, *places.span(joined))
    return _pairs(joined, tuple(field for literal in literals for field in literal.fields))


def _pairs(joined: ast.expr, fields: tuple[Field, ...]) -> list[_Pair]:
    values = [part for part in getattr(joined, "values", ()) if not isinstance(part, ast.Constant)]
    if len(values) != len(fields):
        raise Unreadable(f"{len(fields)} fields in the text, {len(values)} in the tree")
    found: list[_Pair] = []
    for value, field in zip(values, fields, strict=True):
        found.append((value, field))
        if value.format_spec is not None:
            found += _pairs(value.format_spec, field.fields)
    return found


def _correct_round(strings: list[ast.JoinedStr], places: Places) -> list[ast.JoinedStr]:
    """Correct the expressions of these f-strings; returns the f-strings found in them."""
    todo: list[tuple[ast.JoinedStr, ast.FormattedValue, Field]] = []
    for joined in strings:
        try:
            pairs = _read(joined, places)
        except Unreadable:
            _give_up(joined)
            continue
        for value, field in pairs:
            _place(value, places.place(field.start), places.place(field.end))
            if field.spec is not None and value.format_spec is not None:
                _place(value.format_spec, *map(places.place, field.spec))
            if not _place_dotted(value.value, field, places):
                todo.append((joined, value, field))
    # All expressions in one text, each in its brackets: one parse instead of hundreds.
    parts: list[bytes] = []
    lines: list[int] = []
    line = 1
    for _, _, field in todo:
        parts.append(b"(" + places.data[field.expression : field.expression_end] + b"\n)\n")
        lines.append(line)
        line += 2 + places.place(field.expression_end)[0] - places.place(field.expression)[0]
    parsed = ast.parse(b"".join(parts).decode()).body
    inner: list[ast.JoinedStr] = []
    for (joined, value, field), first, statement in zip(todo, lines, parsed, strict=True):
        assert isinstance(statement, ast.Expr)
        row, column = places.place(field.expression)
        try:
            inner += _carry(statement.value, value.value, first, row - first, column - 1)
        except ValueError:
            _give_up(joined)
    return inner


def _place(node: ast.expr, start: tuple[int, int], end: tuple[int, int]) -> None:
    node.lineno, node.col_offset = start
    node.end_lineno, node.end_col_offset = end


def _place_dotted(node: ast.expr, field: Field, places: Places) -> bool:
    """Place a name or a chain of attributes, most of what fields hold; False for anything else."""
    text = _DOTTED.fullmatch(places.data, field.expression, field.expression_end)
    if text is None:
        return False
    start, end = text.span(1)
    chain: list[ast.expr] = [node]
    while isinstance(chain[-1], ast.Attribute):
        chain.append(chain[-1].value)
    if places.data.count(b".", start, end) != len(chain) - 1:
        return False
    for part in chain:
        _place(part, places.place(start), places.place(end))
        end = places.data.rfind(b".", start, end)
    return True


def _carry(parsed: ast.expr, node: ast.expr, first: int, rows: int, columns: int) -> Iterator[ast.JoinedStr]:
    """Copy positions from `parsed` to `node`, moved by `rows`, and by `columns` on line `first`.

    Raises ValueError where the two trees differ. Yields the f-strings inside without entering them.
    """
    stack: list[tuple[ast.AST, ast.AST]] = [(parsed, node)]
    while stack:
        source, target = stack.pop()
        if type(source) is not type(target):
            raise ValueError(f"{type(source).__name__} is {type(target).__name__} in the tree")
        if isinstance(source, ast.expr | ast.keyword | ast.arg):
            last = source.end_lineno or source.lineno
            _place(
                target,  # type: ignore[arg-type]
                (source.lineno + rows, source.col_offset + columns * (source.lineno == first)),
                (last + rows, (source.end_col_offset or 0) + columns * (last == first)),
            )
        if isinstance(target, ast.JoinedStr):
            yield target
        else:
            children = ast.iter_child_nodes(source), ast.iter_child_nodes(target)
            stack += zip(*children, strict=True)


def _give_up(joined: ast.JoinedStr) -> None:
    place = joined.lineno, joined.col_offset
    for node in ast.walk(joined):
        if node is not joined and isinstance(node, ast.expr | ast.keyword | ast.arg):
            _place(node, place, place)  # type: ignore[arg-type]
