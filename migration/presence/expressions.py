"""Expressions in the order in which Python evaluates them, with the attributes that exist in between."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from migration.code.facts import children, parameters
from migration.presence.calls import Calls
from migration.presence.conditions import Conditions
from migration.presence.values import Load, State, meet


class Expressions(Calls, Conditions):
    """Walks expressions; statements are added by `flow.Flow`."""

    def value(self, node: ast.AST, state: State) -> State:
        """The state after `node` has been evaluated."""
        if isinstance(node, ast.Constant):
            return state
        if isinstance(node, ast.Name):
            if node.id == self.self_name:
                if isinstance(node.ctx, ast.Load):
                    self.mention(None, node, state)
                else:
                    self.risk("rebinds", node)
            return state
        if isinstance(node, ast.Attribute):
            return self._attribute(node, state)
        if isinstance(node, ast.Call):
            return self._call(node, state)
        if isinstance(node, ast.Await):
            if isinstance(node.value, ast.Call):
                return self._call(node.value, state, awaited=True)
            return self.value(node.value, state)
        if isinstance(node, ast.BoolOp) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            return meet(*self.condition(node, state))
        if isinstance(node, ast.IfExp):
            yes, no = self.condition(node.test, state)
            return meet(self.value(node.body, yes), self.value(node.orelse, no))
        if isinstance(node, ast.Compare):
            return self._compare(node, state)
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            return self._comprehension(node, state)
        if isinstance(node, ast.Lambda):
            state = self.all((*node.args.defaults, *node.args.kw_defaults), state)
            self.nested(node, (node.body,), state)
            return state
        if isinstance(node, ast.Dict):
            return self._looked_at(
                (part for pair in zip(node.keys, node.values, strict=True) for part in pair), state
            )
        if isinstance(node, ast.Subscript) and self.is_namespace(node.value):
            self.risk("namespace", node)
            return self.value(node.slice, state)
        if isinstance(node, ast.NamedExpr):
            return self.value(node.target, self.value(node.value, state))
        return self.all(children(node), state)

    def _compare(self, node: ast.Compare, state: State) -> State:
        """Only the first comparison is sure to be made; `in self.__dict__` only looks."""
        state = inside = self.value(node.left, state)
        for index, (operator, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            if isinstance(operator, ast.In | ast.NotIn) and self.is_namespace(right):
                self.risk("namespace", right)
            else:
                inside = self.value(right, inside)
            state = inside if index == 0 else state
        return state

    def _attribute(self, node: ast.Attribute, state: State) -> State:
        name = self.attribute(node)
        if name is None:
            return self.value(node.value, state)
        if name == "__dict__":
            return self._namespace_escapes(node, state)
        self.mention(name, node, state)
        self.trace.loads.append(Load(name, node, state))
        return self.exists(state, name)

    def _comprehension(self, node: ast.expr, state: State) -> State:
        generators: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]
        if not self.is_namespace(generators[0].iter):
            state = self.value(generators[0].iter, state)
        inside = state
        for index, generator in enumerate(generators):
            if index:
                inside = self.value(generator.iter, inside)
            inside = self.target(generator.target, inside, None)
            for test in generator.ifs:
                inside, _ = self.condition(test, inside)
        parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)  # type: ignore[attr-defined]
        self.nesting += isinstance(node, ast.GeneratorExp)
        self.all(parts, inside)
        self.nesting -= isinstance(node, ast.GeneratorExp)
        return state

    def nested(self, node: ast.AST, body: Iterable[ast.AST], state: State) -> None:
        """A function or lambda that runs later: what exists now still exists then."""
        if self.self_name in parameters(node.args):  # type: ignore[attr-defined]
            return
        self.nesting += 1
        self.all(body, state)
        self.nesting -= 1

    def target(self, node: ast.expr, state: State, value: ast.expr | None) -> State:
        """The state after an assignment to `node`."""
        if isinstance(node, ast.Tuple | ast.List):
            values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            paired = len(values) == len(node.elts) and not any(
                isinstance(part, ast.Starred) for part in (*values, *node.elts)
            )
            for index, part in enumerate(node.elts):
                state = self.target(part, state, values[index] if paired else None)
            return state
        if isinstance(node, ast.Starred):
            return self.target(node.value, state, None)
        if (name := self.attribute(node)) is not None:
            return self.written(name, node, state, value, "assign")
        if isinstance(node, ast.Subscript) and self.is_namespace(node.value):
            self.risk("namespace", node)
            self.risk("adds", node)
            return self.value(node.slice, state)
        if isinstance(node, ast.Attribute):
            return self.value(node.value, state)
        return self.value(node, state)
