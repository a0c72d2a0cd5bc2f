"""What a walk over one method finds out about the attributes of self."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

#: Attributes that exist for sure; None: this point is not reached.
State = frozenset[str] | None
TestKind = Literal["hasattr", "getattr"]


class Test(NamedTuple):
    """`hasattr(self, "x")` or `getattr(self, "x"[, default])`; no attribute: a computed name."""

    kind: TestKind
    node: ast.Call
    attribute: str | None
    state: State
    nested: bool


class Load(NamedTuple):
    """`self.x` read, called, or read and written by `self.x += 1`."""

    attribute: str
    node: ast.Attribute
    state: State


class Write(NamedTuple):
    """An assignment. `value` is None where what is assigned cannot be seen (unpacking, a loop target)."""

    attribute: str
    node: ast.expr
    value: ast.expr | None
    how: Literal["assign", "augment", "setattr"]
    marker: str


class Removal(NamedTuple):
    """`del self.x` or `delattr`; no attribute: a computed name."""

    attribute: str | None
    node: ast.expr


class Mention(NamedTuple):
    """Code that may run now or later because of it: `self.m`, `super().m`, or (no name) bare self passed on."""

    name: str | None
    line: int
    state: State
    on_super: bool = False


class Risk(NamedTuple):
    """What makes attributes come or go unseen.

    `adds`/`removes`: attributes of unknown name; `rebinds`: self is another object afterwards;
    `class`: the class of the object changes; `namespace`: the attribute dictionary is looked at.
    """

    kind: Literal["adds", "removes", "rebinds", "class", "namespace"]
    line: int
    text: str


@dataclass
class Trace:
    """One method, in the order of evaluation. `at_return`: after any normal return, None if there is none."""

    at_return: State = None
    tests: list[Test] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)
    risks: list[Risk] = field(default_factory=list)


def meet(*states: State) -> State:
    """What exists whichever way was taken; ways that are not taken do not count."""
    reached = [state for state in states if state is not None]
    return frozenset.intersection(*reached) if reached else None


def mangled(name: str, class_name: str) -> str:
    """The attribute name that Python makes of `self.__x` inside the class."""
    if not name.startswith("__") or name.endswith("__"):
        return name
    owner = class_name.lstrip("_")
    return f"_{owner}{name}" if owner else name
