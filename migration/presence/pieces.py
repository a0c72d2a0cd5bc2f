"""The parts of the walk that expressions, calls and conditions share."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Protocol

from migration.code.facts import dotted
from migration.presence.values import Mention, Risk, State, Trace, Write, mangled


class Surroundings(Protocol):
    """What the walk asks about the rest of the class."""

    @property
    def loads_prove(self) -> bool:
        """A successful `self.x` proves that x exists: not where `__getattr__` may answer instead."""

    def made_by_call(self, name: str, *, awaited: bool) -> frozenset[str]:
        """Attributes that exist after `self.name(...)` has returned."""

    def made_by_super(self, owner: ast.AST, name: str, *, awaited: bool) -> frozenset[str]:
        """The same for `super().name(...)` in the method `owner`."""

    def lets_exceptions_through(self, manager: ast.expr) -> bool:
        """Whether a `with` over this expression is known not to swallow exceptions."""


class Pieces:
    """What a walk knows, and what it notes down."""

    def __init__(self, self_name: str, class_name: str, around: Surroundings, owner: ast.AST) -> None:
        self.self_name = self_name
        self.class_name = class_name
        self.around = around
        self.owner = owner
        self.trace = Trace()
        self.nesting = 0

    # Pieces

    def is_self(self, node: ast.AST | None) -> bool:
        return isinstance(node, ast.Name) and node.id == self.self_name

    def attribute(self, node: ast.AST) -> str | None:
        """The name of `self.name`, as Python stores it."""
        if isinstance(node, ast.Attribute) and self.is_self(node.value):
            return mangled(node.attr, self.class_name)
        return None

    def is_namespace(self, node: ast.AST) -> bool:
        """`self.__dict__` or `vars(self)`."""
        if isinstance(node, ast.Call):
            return dotted(node.func) == "vars" and len(node.args) == 1 and self.is_self(node.args[0])
        return self.attribute(node) == "__dict__"

    def mention(self, name: str | None, node: ast.expr, state: State, *, on_super: bool = False) -> None:
        self.trace.mentions.append(Mention(name, node.lineno, state, on_super))

    def risk(self, kind: str, node: ast.expr | ast.stmt) -> None:
        self.trace.risks.append(Risk(kind, node.lineno, ast.unparse(node)))  # type: ignore[arg-type]

    def exists(self, state: State, name: str, *, written: bool = False) -> State:
        """The state after an access to `name` that went well."""
        if state is None or not (written or self.around.loads_prove):
            return state
        return state | {name}

    def all(self, nodes: Iterable[ast.AST | None], state: State) -> State:
        for node in nodes:
            if node is not None:
                state = self.value(node, state)
        return state

    def value(self, node: ast.AST, state: State) -> State:
        """The state after `node` has been evaluated; `Expressions` knows how."""
        raise NotImplementedError

    def _looked_at(self, nodes: Iterable[ast.AST | None], state: State) -> State:
        """Evaluate nodes where the attribute dictionary would only be read."""
        for node in nodes:
            if node is not None and self.is_namespace(node):
                self.risk("namespace", node)  # type: ignore[arg-type]
            elif node is not None:
                state = self.value(node, state)
        return state

    def _namespace_escapes(self, node: ast.expr, state: State) -> State:
        for kind in ("namespace", "adds", "removes"):
            self.risk(kind, node)
        return state

    def written(self, name: str, node: ast.expr, state: State, value: ast.expr | None, how: str) -> State:
        if name == "__dict__":
            return self._namespace_escapes(node, state)
        if name == "__class__":
            self.risk("class", node)
        self.mention(name, node, state)
        marker = f"{id(node)}"
        self.trace.writes.append(Write(name, node, value, how, marker))  # type: ignore[arg-type]
        return self.exists(self.exists(state, name, written=True), marker, written=True)
