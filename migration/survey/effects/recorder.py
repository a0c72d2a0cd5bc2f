"""Where a write that is not to an attribute of self is kept."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from migration.code.facts import dotted
from migration.survey.effects.names import looks_like_state
from migration.survey.effects.scopes import Meaning, Owner, Scope
from migration.survey.effects.values import Effects, EnvironmentUse, Holder, How, StateWrite

_HOLDERS: dict[str, Holder] = {"class": "class", "global": "global", "imported": "imported", "self": "object"}


class Recorder:
    """What has been found, and the scope that the walk is in."""

    def __init__(self, owner: Owner, scope: Scope) -> None:
        self.owner = owner
        self.scope = scope
        self.found = Effects()
        self.conditional = 0

    def visit(self, node: ast.AST) -> None:
        """Walk one node; the walker decides how."""
        raise NotImplementedError

    def _all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _meaning(self, node: ast.expr) -> Meaning | None:
        path = self.owner.dotted(node)
        return self.scope.meaning(path) if path else None

    def _changed(self, value: ast.expr, how: How, variable: str, line: int) -> None:
        """`value[...] = ...` or `value.append(...)`: what holds the value is changed in place."""
        if isinstance(value, ast.Call) and dotted(value.func) == "globals":
            self._state("global", "", variable, "set", line)
            return
        while (meaning := self._meaning(value)) is None and isinstance(value, ast.Subscript | ast.Attribute):
            value = value.value
        if meaning is None:
            return
        holder, _, attribute = meaning.path.rpartition(".")
        if meaning.path == "os.environ":
            self.found.environment.append(EnvironmentUse(variable, "write", line))
        elif meaning.place == "self" and not holder:
            if attribute:
                self.found.mutates.append((attribute, line))
        elif (attribute and meaning.place != "imported") or how == "item" or looks_like_state(meaning.path):
            self._place(Meaning(meaning.place, holder), attribute, how, line)

    def _place(self, holder: Meaning, attribute: str, how: How, line: int) -> None:
        """Record a write to `holder.attribute`."""
        if holder.place == "builtin":
            return
        target = holder.path
        if holder.place == "self":
            target = f"self.{target}"
        elif holder.place == "class":
            target = target or self.owner.class_name
        self._state(_HOLDERS[holder.place], target, attribute, how, line)

    def _state(self, holder: Holder, target: str, attribute: str, how: How, line: int) -> None:
        self.found.state_writes.append(StateWrite(holder, target, attribute, how, line))


def literal(node: ast.expr) -> str:
    """A constant as text, any other expression as it is written."""
    return str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node)
