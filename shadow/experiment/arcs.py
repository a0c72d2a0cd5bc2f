"""Which branches a function has: both ways out of each conditional jump, as places of its source."""

from __future__ import annotations

import dis
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

_ALONG = frozenset(("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"))
_CLEANUP = frozenset(("POP_TOP", "END_FOR", "POP_ITER", "SWAP", "COPY", "NOP", "NOT_TAKEN"))
#: What a loop does with each item before its body.
_BINDS = ("STORE_", "UNPACK_")
_COPIES = frozenset(("COPY", "TO_BOOL"))
#: Jumps that no condition of the source stands behind: does `__exit__` swallow it, is there an exception left.
_UNWRITTEN = frozenset(("WITH_EXCEPT_START", "PREP_RERAISE_STAR"))
_MATCHES = frozenset(("MATCH_CLASS", "MATCH_KEYS"))
Span = tuple[int, int, int, int]


@dataclass(frozen=True)
class Arc:
    """One way out of one condition; equal to that of another copy of it (`finally` is compiled more than once)."""

    file: str
    function: str
    at: Span
    sense: str


@dataclass(frozen=True)
class Jump:
    """A conditional jump. `near` and `far`: falling through and jumping, None where that is no branch."""

    near: Arc | None
    far: Arc | None
    #: Offsets of the next instruction and of the jump's target.
    next: int
    target: int


@dataclass(frozen=True)
class Branches:
    #: In the order of the source, with how a reader is told of each.
    labels: dict[Arc, str]
    #: By code object and offset, prefixes of the instruction included.
    jumps: tuple[tuple[CodeType, dict[int, Jump]], ...]


def branches_of(code: CodeType) -> Branches:
    """Those of a function, and of the functions and comprehensions written in it."""
    where: dict[Arc, str] = {}
    jumps = tuple((each, _Reader(each, where).jumps()) for each in _codes(code))
    ways = Counter((arc.function, arc.at) for arc in where)
    single = {arc for arc in where if ways[arc.function, arc.at] == 1}
    kept = {arc: to for arc, to in where.items() if arc not in single}
    chosen = tuple((each, dict(_without(found, single))) for each, found in jumps)
    ordered = sorted(kept, key=lambda arc: (arc.at, arc.sense))
    short = Counter(_label(arc, kept[arc], exact=False) for arc in ordered)
    labels = {}
    for arc in ordered:
        doubtful = short[_label(arc, kept[arc], exact=False)] > 1 or kept[arc] == str(arc.at[0])
        labels[arc] = _label(arc, kept[arc], exact=doubtful)
    return Branches(labels, tuple((each, found) for each, found in chosen if found))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _without(jumps: dict[int, Jump], single: set[Arc]) -> Iterator[tuple[int, Jump]]:
    """A condition of which only one way out is left (an assertion) is none."""
    for offset, jump in jumps.items():
        near = None if jump.near in single else jump.near
        far = None if jump.far in single else jump.far
        if near is not None or far is not None:
            yield offset, Jump(near, far, jump.next, jump.target)


def _label(arc: Arc, to: str, *, exact: bool) -> str:
    name = os.path.basename(arc.file)
    if not exact:
        return f"{name}:{arc.at[0]} -> {to}"
    return f"{name}:{arc.at[0]}:{arc.at[1] + 1} -> {to} ({arc.sense})"


class _Reader:
    """Reads one code object; `where` gets each arc's destination."""

    def __init__(self, code: CodeType, where: dict[Arc, str]) -> None:
        self._code, self._where = code, where
        self._steps = list(dis.get_instructions(code))
        self._index = {step.offset: index for index, step in enumerate(self._steps)}

    def jumps(self) -> dict[int, Jump]:
        found: dict[int, Jump] = {}
        for index, step in enumerate(self._steps):
            if not _is_conditional(step) or self._before(index).opname in _UNWRITTEN:
                continue
            at = self._span(index)
            near, far = self._senses(index)
            following = self._steps[index + 1]
            jump = Jump(
                self._arc(at, near, index, index + 1),
                self._arc(at, far, index, self._index[step.argval]),
                following.offset,
                step.argval,
            )
            if jump.near is None and jump.far is None:
                continue
            found[step.offset] = jump
            while index and self._steps[index - 1].opname == "EXTENDED_ARG":
                index -= 1
                found[self._steps[index].offset] = jump
        return found

    def _before(self, index: int) -> dis.Instruction:
        """What made the value that is tested."""
        index -= 1
        while index and (self._steps[index].opname in _COPIES or self._steps[index].opname == "EXTENDED_ARG"):
            index -= 1
        return self._steps[index]

    def _span(self, index: int) -> Span:
        """The tested operand. The jump has another position: the whole of `a and b`, or the condition before."""
        step = self._steps[index]
        own = _position(step)
        if own is None or own[1] < 0:
            line = own[0] if own is not None else 0
            return line, -1, line, step.offset
        if step.opname == "FOR_ITER":  # its position is what is iterated or the whole loop, by version
            return (*own[:2], *own[:2])
        made = self._before(index)
        if "STORE" in made.opname and "LOAD" in made.opname:  # two in one, with the position of the store
            return _position(self._steps[index - 1]) or own
        return _position(made) or own

    def _senses(self, index: int) -> tuple[str, str]:
        name = self._steps[index].opname
        if name == "FOR_ITER":
            return "next", "end"
        if "NONE" in name:
            near, far = ("None", "not None") if "NOT_NONE" in name else ("not None", "None")
            if self._before(index).opname in _MATCHES:
                near, far = ("true", "false") if near == "not None" else ("false", "true")
            return near, far
        return ("false", "true") if "TRUE" in name else ("true", "false")

    def _arc(self, at: Span, sense: str, jump: int, index: int) -> Arc | None:
        to = self._destination(at, sense, _position(self._steps[jump]), index)
        if to is None:
            return None
        arc = Arc(self._code.co_filename, self._code.co_qualname, at, sense)
        self._where.setdefault(arc, to)
        return arc

    def _destination(self, at: Span, sense: str, own: Span | None, index: int) -> str | None:
        """A line, "exit" or "raise"; None where it only goes on testing the same, or an assertion fails."""
        for _ in self._steps:
            step = self._steps[index]
            position, name = _position(step), step.opname
            silent = position is None or position == own or _within(position, at)
            if name == "RERAISE":
                return "raise"
            if "ASSERTION" in name or (name == "LOAD_COMMON_CONSTANT" and "Assertion" in step.argrepr):
                return None
            if silent and _is_conditional(step) and self._span(index) == at:
                return None
            if silent and self._returns_none(index):
                return "exit"
            if silent and name in _ALONG:
                index = self._index[step.argval]
                continue
            binds = sense == "next" and name.startswith(_BINDS)
            cleans = name in _CLEANUP and position is not None and _within(at, position)
            if not name.startswith("RETURN_") and (
                silent or cleans or (binds and position is not None and position[0] == at[0])
            ):
                index += 1
                continue
            return str(position[0] if position is not None else at[0])
        return str(at[0])

    def _returns_none(self, index: int) -> bool:
        step = self._steps[index]
        if step.opname == "RETURN_CONST":
            return step.argval is None
        returns = self._steps[index + 1 : index + 2]
        loads_none = step.opname == "LOAD_CONST" and step.argval is None
        return loads_none and bool(returns) and returns[0].opname == "RETURN_VALUE"


def _is_conditional(step: dis.Instruction) -> bool:
    return step.opname.startswith(("POP_JUMP", "JUMP_IF_")) or step.opname == "FOR_ITER"


def _position(step: dis.Instruction) -> Span | None:
    """None where the compiler gave it none; columns are -1 where they were left out."""
    found = step.positions
    if found is None or found.lineno is None:
        return None
    if found.col_offset is None or found.end_col_offset is None:
        return found.lineno, -1, found.lineno, -1
    return found.lineno, found.col_offset, found.end_lineno or found.lineno, found.end_col_offset


def _within(inner: Span, outer: Span) -> bool:
    return outer[:2] <= inner[:2] and inner[2:] <= outer[2:]
