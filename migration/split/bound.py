"""Which locals are bound before and after each statement: on every path, and on any."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from migration.split.effects import Effect, Effects, is_constant_true, is_irrefutable
from migration.split.scope import bound_names


@dataclass(frozen=True, slots=True)
class Bound:
    """Masks of the names bound on every path that leads here, and on some path."""

    must: int
    may: int


#: None is a place that no path reaches.
State = Bound | None


def after_effect(state: State, effect: Effect) -> State:
    if state is None or not effect.falls:
        return None
    return Bound((state.must & ~effect.lost) | effect.must, (state.may | effect.may) & ~effect.gone)


def interrupted(state: State, effect: Effect) -> State:
    """Somewhere in the middle of `effect`, where an exception left it or a loop comes round."""
    return None if state is None else Bound(state.must & ~effect.lost, state.may | effect.may)


def join(states: Iterable[State]) -> State:
    found: State = None
    for state in states:
        if state is not None:
            found = state if found is None else Bound(found.must & state.must, found.may | state.may)
    return found


@dataclass
class BoundNames:
    """`before` and `after` each statement of a method, by the id of its node."""

    effects: Effects
    before: dict[int, State] = field(default_factory=dict)
    after: dict[int, State] = field(default_factory=dict)
    _breaks: list[list[State]] = field(default_factory=list)

    def run(self, statements: Sequence[ast.stmt], state: State) -> State:
        """Follow `statements` from `state`, noting what holds at each; what holds at the end."""
        for node in statements:
            self.before[id(node)] = state
            step = getattr(self, f"_{type(node).__name__}", None)
            state = step(node, state) if step else after_effect(state, self.effects.of(node))
            self.after[id(node)] = state
        return state

    def _then(self, state: State, *parts: ast.AST | None) -> State:
        return after_effect(state, self.effects.all(parts))

    def _Break(self, node: ast.Break, state: State) -> State:
        self._breaks[-1].append(state)
        return None

    def _If(self, node: ast.If, state: State) -> State:
        state = self._then(state, node.test)
        return join((self.run(node.body, state), self.run(node.orelse, state)))

    def _For(self, node: ast.For | ast.AsyncFor, state: State) -> State:
        head = interrupted(self._then(state, node.iter), self.effects.of(node))
        return self._loop(node, self._then(head, node.target), head)

    _AsyncFor = _For

    def _While(self, node: ast.While, state: State) -> State:
        head = self._then(interrupted(state, self.effects.of(node)), node.test)
        return self._loop(node, head, None if is_constant_true(node.test) else head)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, inside: State, exhausted: State) -> State:
        self._breaks.append([])
        self.run(node.body, inside)
        broken = self._breaks.pop()
        return join((self.run(node.orelse, exhausted), *broken))

    def _With(self, node: ast.With | ast.AsyncWith, state: State) -> State:
        parts = [part for item in node.items for part in (item.context_expr, item.optional_vars)]
        inside = self._then(state, *parts)
        end = self.run(node.body, inside)
        if all(map(self.effects.propagates, node.items)):
            return end
        return join((end, interrupted(state, self.effects.of(node))))

    _AsyncWith = _With

    def _Try(self, node: ast.Try, state: State) -> State:
        left = [len(states) for states in self._breaks]
        raised = interrupted(state, self.effects.body(node.body))
        ends = [self.run(node.orelse, self.run(node.body, state))]
        for handler in node.handlers:
            caught = self._then(raised, handler.type)
            caught = after_effect(caught, self.effects.bind(*bound_names(handler)))
            caught = self.run(handler.body, caught)
            ends.append(after_effect(caught, self.effects.unbind(handler.name)))
        end = join(ends)
        if not node.finalbody:
            return end
        final = self.effects.body(node.finalbody)
        everything = [*node.body, *node.orelse, *(part for h in node.handlers for part in h.body)]
        entered = state
        for effect in (
            *map(self.effects.of, everything),
            *(self.effects.bind(*bound_names(h)) for h in node.handlers),
        ):
            entered = interrupted(entered, effect)
        for handler in node.handlers:
            entered = interrupted(entered, self.effects.unbind(handler.name))
        self.run(node.finalbody, entered)
        for states, count in zip(self._breaks, left, strict=True):
            states[count:] = [after_effect(broken, final) for broken in states[count:]]
        return after_effect(end, final)

    _TryStar = _Try

    def _Match(self, node: ast.Match, state: State) -> State:
        rest = self._then(state, node.subject)
        ends: list[State] = []
        for case in node.cases:
            pattern = self.effects.of(case.pattern)
            met = after_effect(rest, pattern)
            ends.append(self.run(case.body, self._then(met, case.guard)))
            rest = None if is_irrefutable(case) else interrupted(self._then(rest, case.guard), pattern)
        return join((*ends, rest))
