"""Which locals are still needed after each statement, and which if it raises."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field

from migration.split.effects import Effect, Effects, is_constant_true, is_irrefutable
from migration.split.scope import bound_names

_JUMPS = ast.Return | ast.Break | ast.Continue


@dataclass(frozen=True, slots=True)
class _Exits:
    """Names needed where an exception, `break` and `continue` lead; `return` runs the same `finally`."""

    raised: int = 0
    broken: int = 0
    continued: int = 0


def _before(effect: Effect, needed: int) -> int:
    return effect.reads | (needed & ~effect.must)


@dataclass
class LiveNames:
    """`after` each statement (normally), `raised` in it; by the id of its node."""

    effects: Effects
    after: dict[int, int] = field(default_factory=dict)
    raised: dict[int, int] = field(default_factory=dict)

    def run(self, statements: Sequence[ast.stmt], needed: int) -> None:
        """Note what is needed after each of `statements`, the body of a method."""
        self._run(statements, needed, _Exits())

    def _run(self, statements: Sequence[ast.stmt], needed: int, exits: _Exits) -> int:
        for node in reversed(statements):
            needed |= exits.raised
            self.after[id(node)] = needed
            self.raised[id(node)] = exits.raised
            needed = self._step(node, needed, exits) | exits.raised
        return needed

    def _step(self, node: ast.stmt, needed: int, exits: _Exits) -> int:
        step = getattr(self, f"_{type(node).__name__}", None)
        if step is not None:
            return int(step(node, needed, exits))
        effect = self.effects.of(node)
        return _before(effect, needed if effect.falls else 0)

    def _reads(self, needed: int, *parts: ast.AST | None) -> int:
        return _before(self.effects.all(parts), needed)

    def _Break(self, node: ast.Break, needed: int, exits: _Exits) -> int:
        return exits.broken

    def _Continue(self, node: ast.Continue, needed: int, exits: _Exits) -> int:
        return exits.continued

    def _If(self, node: ast.If, needed: int, exits: _Exits) -> int:
        branches = self._run(node.body, needed, exits) | self._run(node.orelse, needed, exits)
        return self._reads(branches, node.test)

    def _For(self, node: ast.For | ast.AsyncFor, needed: int, exits: _Exits) -> int:
        done = self._run(node.orelse, needed, exits)
        head, before = done, -1
        while head != before:
            before = head
            inside = self._run(node.body, head, _Exits(exits.raised, needed, head))
            head |= self._reads(inside, node.target)
        return self._reads(head, node.iter)

    _AsyncFor = _For

    def _While(self, node: ast.While, needed: int, exits: _Exits) -> int:
        done = self._run(node.orelse, needed, exits)
        if is_constant_true(node.test):
            done = 0
        head, before = self._reads(done, node.test), -1
        while head != before:
            before = head
            inside = self._run(node.body, head, _Exits(exits.raised, needed, head))
            head |= self._reads(inside | done, node.test)
        return head

    def _With(self, node: ast.With | ast.AsyncWith, needed: int, exits: _Exits) -> int:
        inner = exits
        if not all(map(self.effects.propagates, node.items)):
            inner = _Exits(exits.raised | needed, exits.broken, exits.continued)
        found = self._run(node.body, needed, inner) | inner.raised
        for item in reversed(node.items):
            found = self._reads(found, item.context_expr, item.optional_vars) | inner.raised
        return found

    _AsyncWith = _With

    def _Try(self, node: ast.Try, needed: int, exits: _Exits) -> int:
        leaving = exits
        if node.finalbody:
            # Looked at from inside, `finally` may go on to any of the exits; entered on the way to one of
            # them it goes on there, unless a jump of its own leads elsewhere.
            final = self.effects.body(node.finalbody)
            onward = needed | exits.raised | exits.broken | exits.continued
            needed = self._run(node.finalbody, onward, exits)
            leaving = _Exits(needed, needed, needed)
            if not any(isinstance(part, _JUMPS) for inner in node.finalbody for part in ast.walk(inner)):
                leaving = _Exits(*(_before(final, exit_) for exit_ in astuple(exits)))
        caught = leaving.raised
        for handler in node.handlers:
            inside = self._run(handler.body, needed, leaving)
            inside &= ~self.effects.bind(*bound_names(handler)).must
            caught |= self._reads(inside, handler.type)
        tried = _Exits(caught, leaving.broken, leaving.continued)
        return self._run(node.body, self._run(node.orelse, needed, leaving), tried) | caught

    _TryStar = _Try

    def _Match(self, node: ast.Match, needed: int, exits: _Exits) -> int:
        rest = needed
        for case in reversed(node.cases):
            inside = self._reads(self._run(case.body, needed, exits), case.guard)
            met = _before(self.effects.of(case.pattern), inside)
            if is_irrefutable(case):
                rest = met
            else:
                rest = met | self._reads(rest, case.guard) | self.effects.of(case.pattern).reads
        return self._reads(rest, node.subject)
