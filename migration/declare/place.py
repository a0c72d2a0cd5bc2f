"""Where in `__init__` a declaration stands, and the bytes that put it there."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from migration.code.source import Edit, Source
from migration.code.structure import FunctionNode
from migration.declare.opening import is_super_init, opening, own_assignments
from migration.presence.world import World
from migration.recipe_check import near


class NoPlace(Exception):
    """The recipe names a place where the declaration may not stand; `line` is that place, 0 for none."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Slot:
    """A place behind the statement with that index in the body of `__init__`; -1: before the first one that is
    no docstring."""

    source: Source
    init: FunctionNode
    index: int

    def edit(self, text: str) -> Edit:
        """The statement on a line of its own, or on the one line that the whole method has."""
        source, node = self.source, self.init
        body, eol = node.body, source.eol
        after = self.index if self.index >= 0 else _docstrings(node) - 1
        header = source.logical_end(node.lineno)
        if body[0].lineno <= header:
            if after < 0:
                at = source.offset(body[0].lineno, body[0].col_offset)
                return Edit(at, at, f"{text}; ".encode())
            at = _end(source, body[after])
            return Edit(at, at, f"; {text}".encode())
        line = source.indent_of(body[0].lineno) + text.encode() + eol
        last = header if after < 0 else source.logical_end(body[after].lineno)
        at = source.offset(last + 1)
        if source.data[:at].endswith((b"\n", b"\r")):
            return Edit(at, at, line)
        return Edit(at, at, eol + line.removesuffix(eol))


def slot_of(
    world: World, source: Source, init: FunctionNode, attributes: Collection[str], after: str = ""
) -> Slot:
    """The place behind the assignment of the attribute `after`; without one, behind the run of assignments
    that `__init__` opens with. Raises NoPlace."""
    owner = [*init.args.posonlyargs, *init.args.args][0].arg
    quiet = opening(world, init, attributes)
    first = _docstrings(init)
    slots = [
        (index, statement)
        for index, statement in enumerate(quiet, first)
        if _ends_its_line(source, init.body, index)
    ]
    if after:
        return Slot(source, init, _behind(init, owner, after, [index for index, _ in slots]))
    run = [index for index, s in slots if own_assignments(s, owner) or is_super_init(s)]
    return Slot(source, init, run[-1] if run else -1)


def _behind(init: FunctionNode, owner: str, after: str, free: Sequence[int]) -> int:
    assigned = [(name, i) for i, s in enumerate(init.body) for name in own_assignments(s, owner)]
    found = next((index for name, index in assigned if name == after), None)
    if found is None:
        known = near(after, [name for name, _ in assigned])
        raise NoPlace(f"no statement of __init__ itself assigns {owner}.{after}{known}")
    if found not in free:
        line = init.body[found].lineno
        raise NoPlace(f"what runs up to the assignment of {owner}.{after} (line {line}) may ask for it", line)
    return found


def _docstrings(node: FunctionNode) -> int:
    return int(ast.get_docstring(node, clean=False) is not None)


def _ends_its_line(source: Source, body: Sequence[ast.stmt], index: int) -> bool:
    """Whether nothing else stands on the last line of a statement; in a body of one line all have a place."""
    statement = body[index]
    following = body[index + 1] if index + 1 < len(body) else None
    last = source.logical_end(statement.lineno)
    return last == statement.end_lineno and (following is None or following.lineno > last)


def _end(source: Source, statement: ast.stmt) -> int:
    assert statement.end_lineno is not None and statement.end_col_offset is not None
    return source.offset(statement.end_lineno, statement.end_col_offset)
