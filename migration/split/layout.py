"""The lines of a method: its blocks, their statements, and the comments that go with each.

A comment belongs to the statement below it; one that closes a block, to the statement above.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from migration.code.source import Source
from migration.code.structure import FunctionNode, Method
from migration.split.effects import inner_statements


@dataclass(frozen=True)
class Item:
    """One statement: `gap_line` begins its blank and comment lines, `lead_line` its first comment.

    `starts` and `ends` tell whether it has the whole of its first and last line to itself.
    """

    node: ast.stmt
    gap_line: int
    lead_line: int
    first_line: int
    last_line: int
    starts: bool
    ends: bool
    blocks: tuple[Block, ...]

    @property
    def lines(self) -> int:
        """Lines, those above it included."""
        return self.last_line - self.gap_line + 1

    @property
    def blank_lines(self) -> int:
        return self.lead_line - self.gap_line

    @property
    def is_marked(self) -> bool:
        """A comment or a blank line sets it apart from what is above."""
        return self.gap_line < self.first_line


@dataclass(frozen=True)
class Block:
    """A list of statements. `loop` gives first and last line of the outermost loop around it.

    `is_last`: after its last statement nothing of the method is left to run. `handled` are the
    names bound by the `except ... as` clauses around it.
    """

    items: tuple[Item, ...]
    indent: bytes
    depth: int
    loop: tuple[int, int] | None
    is_last: bool
    handled: tuple[str, ...]

    def can_cut(self, index: int) -> bool:
        """Whether a run of statements may begin or end before statement `index`."""
        before = index == 0 or self.items[index - 1].ends
        return before and (index == len(self.items) or self.items[index].starts)


@dataclass(frozen=True)
class Layout:
    """`header_lines` and `body` make up the method; its docstring, which is no code, counts for nothing."""

    method: Method
    header_lines: int
    body: Block

    @property
    def size(self) -> int:
        return self.header_lines + sum(item.lines for item in self.body.items)


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.comments = frozenset(comment.line for comment in source.comments if comment.own_line)

    def _text(self, line: int) -> bytes:
        return self.source.lines[line - 1]

    def _is_gap(self, line: int) -> bool:
        return line in self.comments or not self._text(line).strip()

    def block(
        self,
        statements: list[ast.stmt],
        end: int,
        depth: int,
        loop: tuple[int, int] | None,
        is_last: bool,
        handled: tuple[str, ...],
    ) -> Block:
        """`end` is the last line up to which comments that close the block may follow."""
        indent = self.source.indent_of(statements[0].lineno)
        firsts = [_first_line(node) for node in statements]
        items: list[Item] = []
        previous = firsts[0] - 1
        while self._is_gap(previous):
            previous -= 1
        for index, node in enumerate(statements):
            final = index + 1 == len(statements)
            last = self._last_line(node, indent, end if final else firsts[index + 1] - 1, final)
            gap = previous + 1
            lead = next((line for line in range(gap, firsts[index]) if line in self.comments), firsts[index])
            blocks = self._blocks(node, last, depth, loop, is_last and final, handled)
            items.append(
                Item(
                    node,
                    gap,
                    lead,
                    firsts[index],
                    last,
                    self._starts(node, firsts[index]),
                    self._ends(node),
                    blocks,
                )
            )
            previous = last
        return Block(tuple(items), indent, depth, loop, is_last, handled)

    def _last_line(self, node: ast.stmt, indent: bytes, end: int, final: bool) -> int:
        """With the comments below that belong to it: deeper ones, or any that close the block."""
        last = line = node.end_lineno or node.lineno
        while line < end and self._is_gap(line + 1):
            line += 1
            if line in self.comments:
                own = self.source.indent_of(line)
                if not (own.startswith(indent) and (final or own != indent)):
                    break
                last = line
        return last

    def _starts(self, node: ast.stmt, first: int) -> bool:
        if first == node.lineno and self._text(first)[: node.col_offset].strip():
            return False
        above = self._text(first - 1).rstrip() if first > 1 else b""
        return not above.endswith(b"\\") or first - 1 in self.comments

    def _ends(self, node: ast.stmt) -> bool:
        assert node.end_lineno is not None
        rest = self._text(node.end_lineno)[node.end_col_offset :].strip()
        return not rest or rest.startswith(b"#")

    def _blocks(
        self,
        node: ast.stmt,
        end: int,
        depth: int,
        loop: tuple[int, int] | None,
        is_last: bool,
        handled: tuple[str, ...],
    ) -> tuple[Block, ...]:
        if isinstance(node, FunctionNode | ast.ClassDef) or not inner_statements(node):
            return ()
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            loop = loop or (node.lineno, end)
        is_last = is_last and isinstance(node, ast.If | ast.With | ast.AsyncWith | ast.Match)
        branches: list[tuple[list[ast.stmt], tuple[str, ...]]] = [(getattr(node, "body", []), handled)]
        for branch in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            name = getattr(branch, "name", None)
            branches.append((branch.body, (*handled, name) if name else handled))
        branches += [(getattr(node, "orelse", []), handled), (getattr(node, "finalbody", []), handled)]
        found: list[Block] = []
        for statements, names in branches:
            if not statements:
                continue
            offset = self.source.offset(statements[0].lineno, statements[0].col_offset)
            if self.source.data.startswith(b"elif", offset) and isinstance(statements[0], ast.If):
                # Not a block of its own in the text, but its branches are.
                found += self._blocks(statements[0], end, depth, loop, is_last, names)
            elif self._starts(statements[0], _first_line(statements[0])):
                found.append(self.block(statements, end, depth + 1, loop, is_last, names))
        return tuple(found)


def _first_line(node: ast.stmt) -> int:
    return min([node.lineno, *(part.lineno for part in getattr(node, "decorator_list", ()))])


def has_docstring(node: FunctionNode) -> bool:
    first = node.body[0]
    return (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )


def layout(source: Source, method: Method) -> Layout | None:
    """The blocks of a method; None where its body has no line of its own to cut at."""
    reader = _Reader(source)
    node = method.node
    code = node.body[1:] if has_docstring(node) else node.body
    if not code or not reader._starts(code[0], _first_line(code[0])):
        return None
    body = reader.block(code, method.block_end, 0, None, True, ())
    header = body.items[0].gap_line - method.first_line
    if has_docstring(node):
        header -= (node.body[0].end_lineno or node.body[0].lineno) - node.body[0].lineno + 1
    return Layout(method, header, body)
