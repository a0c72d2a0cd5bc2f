"""Which attributes of self exist for sure at each point of a method.

A forward analysis: the state at a point is the set of attributes that exist whichever way led there.
It only ever grows along a way, so it holds for attributes that nobody deletes; whether somebody
does is the caller's question (`Trace.removals`, `Trace.risks`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from migration.code.facts import self_name
from migration.code.structure import FunctionNode
from migration.presence.expressions import Expressions
from migration.presence.pieces import Surroundings
from migration.presence.values import Load, Removal, Risk, State, Trace, meet


def trace_method(
    node: FunctionNode, class_name: str, around: Surroundings, entry: frozenset[str] = frozenset()
) -> Trace:
    """Walk one method whose first parameter is self; `entry` exists when it is called."""
    name = self_name(node)
    if name is None:
        return Trace(at_return=entry)
    flow = Flow(name, class_name, around, node)
    end = flow.block(node.body, entry)
    flow.trace.at_return = meet(end, *flow.returns)
    if any(risk.kind == "rebinds" for risk in flow.trace.risks):
        flow.trace.at_return = entry
    return flow.trace


class Flow(Expressions):
    """Statements. A state of None walks code that is not reached, for what it mentions."""

    def __init__(self, self_name: str, class_name: str, around: Surroundings, owner: ast.AST) -> None:
        super().__init__(self_name, class_name, around, owner)
        self.returns: list[State] = []
        self.breaks: list[list[State]] = []

    def block(self, body: Iterable[ast.stmt], state: State) -> State:
        for statement in body:
            state = self.statement(statement, state)
        return state

    def nested(self, node: ast.AST, body: Iterable[ast.AST], state: State) -> None:
        returns, breaks = self.returns, self.breaks
        self.returns, self.breaks = [], []
        super().nested(node, body, state)
        self.returns, self.breaks = returns, breaks

    def value(self, node: ast.AST, state: State) -> State:
        # The body of a nested function consists of statements.
        return self.statement(node, state) if isinstance(node, ast.stmt) else super().value(node, state)

    def statement(self, node: ast.stmt, state: State) -> State:
        """The state after one statement, None where it never ends normally."""
        match node:
            case ast.Expr():
                return self.value(node.value, state)
            case ast.Assign():
                state = self.value(node.value, state)
                for target in node.targets:
                    state = self.target(target, state, node.value)
                return state
            case ast.AnnAssign():
                if node.value is None:
                    return state
                return self.target(node.target, self.value(node.value, state), node.value)
            case ast.AugAssign():
                return self._augmented(node, state)
            case ast.Return():
                self.returns.append(self.all((node.value,), state))
                return None
            case ast.Raise():
                self.all((node.exc, node.cause), state)
                return None
            case ast.Break():
                self.breaks[-1].append(state)
                return None
            case ast.Continue():
                return None
            case ast.If():
                yes, no = self.condition(node.test, state)
                return meet(self.block(node.body, yes), self.block(node.orelse, no))
            case ast.While():
                yes, no = self.condition(node.test, state)
                return self._loop(node, yes, no)
            case ast.For() | ast.AsyncFor():
                if not self.is_namespace(node.iter):
                    state = self.value(node.iter, state)
                return self._loop(node, self.target(node.target, state, None), state)
            case ast.With() | ast.AsyncWith():
                return self._with(node, state)
            case ast.Try() | ast.TryStar():
                return self._try(node, state)
            case ast.Match():
                return self._match(node, state)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._named(node.name, node)
                arguments = node.args
                state = self.all((*node.decorator_list, *arguments.defaults, *arguments.kw_defaults), state)
                self.nested(node, node.body, state)
                return state
            case ast.ClassDef():
                self._named(node.name, node)
                state = self.all((*node.decorator_list, *node.bases, *node.keywords), state)
                self.block(node.body, state)
                return state
            case ast.Assert():
                # With -O the test is not evaluated: nothing is learnt from it.
                _, no = self.condition(node.test, state)
                self.all((node.msg,), no)
                return state
            case ast.Delete():
                for target in node.targets:
                    state = self._delete(target, state)
                return state
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    self._named(alias.asname or alias.name, node)
        return state

    def _named(self, name: str | None, node: ast.AST) -> None:
        """A binding that is no `Name` node: a definition, an import, a capture."""
        if name == self.self_name:
            self.trace.risks.append(Risk("rebinds", getattr(node, "lineno", 0), name))

    def _augmented(self, node: ast.AugAssign, state: State) -> State:
        name = self.attribute(node.target)
        if name is None:
            state = self.all((node.target.value,), state) if hasattr(node.target, "value") else state
            state = self.value(node.value, state)
            return self.target(node.target, state, None)
        assert isinstance(node.target, ast.Attribute)
        self.mention(name, node.target, state)
        self.trace.loads.append(Load(name, node.target, state))
        state = self.value(node.value, self.exists(state, name))
        return self.written(name, node.target, state, None, "augment")

    def _delete(self, target: ast.expr, state: State) -> State:
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                state = self._delete(part, state)
            return state
        if (name := self.attribute(target)) is not None:
            self.mention(name, target, state)
            self.trace.removals.append(Removal(name, target))
            return state
        if isinstance(target, ast.Subscript) and self.is_namespace(target.value):
            self.risk("namespace", target)
            self.risk("removes", target)
            return self.value(target.slice, state)
        return self.value(target, state)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, inside: State, without: State) -> State:
        """`inside` enters the body, `without` leaves when there is no further round."""
        self.breaks.append([])
        self.block(node.body, inside)
        broken = self.breaks.pop()
        return meet(self.block(node.orelse, without), *broken)

    def _with(self, node: ast.With | ast.AsyncWith, state: State) -> State:
        for item in node.items:
            state = self.value(item.context_expr, state)
            if item.optional_vars is not None:
                state = self.target(item.optional_vars, state, None)
        after = self.block(node.body, state)
        if all(self.around.lets_exceptions_through(item.context_expr) for item in node.items):
            return after
        return meet(after, state)

    def _try(self, node: ast.Try | ast.TryStar, state: State) -> State:
        ends = [self.block(node.orelse, self.block(node.body, state))]
        for handler in node.handlers:
            self._named(handler.name, handler)
            # Whatever the body did before it failed, what existed at its start still does.
            ends.append(self.block(handler.body, self.all((handler.type,), state)))
        after = meet(*ends)
        if not node.finalbody:
            return after
        last = self.block(node.finalbody, state)
        return None if after is None or last is None else after | last

    def _match(self, node: ast.Match, state: State) -> State:
        state = self.value(node.subject, state)
        ends: list[State] = []
        always = False
        for case in node.cases:
            for part in ast.walk(case.pattern):
                self._named(getattr(part, "name", None) or getattr(part, "rest", None), part)
            self.all((case.pattern,), state)
            inside = state
            if case.guard is not None:
                inside, _ = self.condition(case.guard, inside)
            elif isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
                always = True
            ends.append(self.block(case.body, inside))
        return meet(*ends, *(() if always else (state,)))
