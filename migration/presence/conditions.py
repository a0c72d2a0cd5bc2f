"""Conditions: what exists where they are true, and where they are false."""

from __future__ import annotations

import ast

from migration.code.facts import dotted
from migration.presence.pieces import Pieces
from migration.presence.values import State, meet


class Conditions(Pieces):
    """Walks tests."""

    def condition(self, node: ast.expr, state: State) -> tuple[State, State]:
        """The states where `node` is true and where it is false."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yes, no = self.condition(node.operand, state)
            return no, yes
        if isinstance(node, ast.BoolOp):
            going, left = state, None
            for part in node.values:
                yes, no = self.condition(part, going)
                if isinstance(node.op, ast.Or):
                    yes, no = no, yes
                going, left = yes, meet(left, no)
            return (left, going) if isinstance(node.op, ast.Or) else (going, left)
        if isinstance(node, ast.Constant):
            return (state, None) if node.value else (None, state)
        after = self.value(node, state)
        proven, when = self._proof(node)
        if proven is None:
            return after, after
        known = self.exists(after, proven)
        return (known, after) if when else (after, known)

    def _proof(self, node: ast.expr) -> tuple[str | None, bool]:
        """An attribute that exists when `node` is true (or false)."""
        if isinstance(node, ast.NamedExpr):
            return self._proof(node.value)
        if isinstance(node, ast.Call):
            name, default = self._tested(node)
            if isinstance(default, ast.Constant) and default.value:
                return None, True
            return name, True
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            operator, left, right = node.ops[0], node.left, node.comparators[0]
            if isinstance(left, ast.NamedExpr):
                left = left.value
            if isinstance(operator, ast.In | ast.NotIn) and self.is_namespace(right):
                key = left.value if isinstance(left, ast.Constant) else None
                return (key if isinstance(key, str) else None), isinstance(operator, ast.In)
            if isinstance(operator, ast.Is | ast.IsNot) and isinstance(left, ast.Call):
                name, default = self._tested(left)
                same = isinstance(right, ast.Constant) and right.value is None
                if same and isinstance(default, ast.Constant) and default.value is None:
                    return name, isinstance(operator, ast.IsNot)
        return None, True

    def _tested(self, node: ast.Call) -> tuple[str | None, ast.expr | None]:
        """Attribute and default of `hasattr(self, "x")` and `getattr(self, "x", constant)`."""
        kind = dotted(node.func)
        if kind not in ("hasattr", "getattr") or not node.args or not self.is_self(node.args[0]):
            return None, None
        name = node.args[1] if len(node.args) > 1 else None
        default = node.args[2] if len(node.args) > 2 else None
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            return None, None
        if kind == "getattr" and not isinstance(default, ast.Constant):
            return None, None
        return name.value, default
