"""What has happened for sure, and what is still owed, on every way through a function.

The events are the caller's: it names those of a node. `done` are events that happened whichever way led here;
`owed` are places where something began that has not been settled on some way. Exceptions that leave the
function owe nothing; a handler may be entered with whatever its body had begun.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from migration.code.structure import FunctionNode


@dataclass(frozen=True)
class Event:
    """`does` happens at the node. `needs` must be done before it; `begins` it owes `settles` of another."""

    does: str = ""
    needs: str = ""
    begins: bool = False
    settles: bool = False


@dataclass(frozen=True)
class State:
    done: frozenset[str] = frozenset()
    owed: frozenset[ast.AST] = frozenset()


@dataclass
class Found:
    """`early` are nodes that what they need may not precede; `unsettled` began something on a way out.
    `events` counts the nodes that had an event."""

    early: dict[ast.AST, str] = field(default_factory=dict)
    unsettled: set[ast.AST] = field(default_factory=set)
    events: set[ast.AST] = field(default_factory=set)


Events = Callable[[ast.AST], Event | None]
_Maybe = State | None


def follow(node: FunctionNode, events: Events) -> Found:
    """Walk the function with its events."""
    walk = _Walk(events)
    walk.leave(walk.block(node.body, State()))
    return walk.found


def _meet(*states: _Maybe) -> _Maybe:
    there = [state for state in states if state is not None]
    if not there:
        return None
    done = frozenset.intersection(*(state.done for state in there))
    return State(done, frozenset().union(*(state.owed for state in there)))


class _Walk:
    def __init__(self, events: Events) -> None:
        self.events = events
        self.found = Found()
        self.breaks: list[list[_Maybe]] = []
        self.continues: list[list[_Maybe]] = []
        self.finals: list[list[ast.stmt]] = []
        #: How many `finally` blocks stand around the loop that a break leaves.
        self.depths: list[int] = []
        self.begun: set[ast.AST] = set()

    def leave(self, state: _Maybe) -> None:
        if state is not None:
            self.found.unsettled |= state.owed

    def block(self, body: Iterable[ast.stmt], state: _Maybe) -> _Maybe:
        for statement in body:
            if state is None:
                return None
            state = self.statement(statement, state)
        return state

    def _through_finals(self, state: _Maybe, depth: int) -> _Maybe:
        """The state after the `finally` blocks that a jump out of them runs."""
        kept = self.finals
        for index in range(len(kept) - 1, depth - 1, -1):
            self.finals = kept[:index]
            state = self.block(kept[index], state)
        self.finals = kept
        return state

    def statement(self, node: ast.stmt, state: State) -> _Maybe:
        match node:
            case ast.Return():
                self.leave(self._through_finals(self.value(node.value, state), 0))
                return None
            case ast.Raise():
                self.value(node.exc, state)
                return None
            case ast.Break() | ast.Continue():
                ways = self.breaks if isinstance(node, ast.Break) else self.continues
                ways[-1].append(self._through_finals(state, self.depths[-1]))
                return None
            case ast.If():
                state = self.value(node.test, state)
                return _meet(self.block(node.body, state), self.block(node.orelse, state))
            case ast.While():
                return self._loop(node, self.value(node.test, state), endless=_is_true(node.test))
            case ast.For() | ast.AsyncFor():
                return self._loop(node, self.value(node.iter, state), endless=False)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    state = self.value(item.context_expr, state)
                return self.block(node.body, state)
            case ast.Try() | ast.TryStar():
                return self._try(node, state)
            case ast.Match():
                state = self.value(node.subject, state)
                ends = [self.block(case.body, state) for case in node.cases]
                return _meet(*ends, *(() if any(map(_takes_all, node.cases)) else (state,)))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return state
        for part in _evaluated(node):
            state = self.value(part, state)
        return state

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, state: State, *, endless: bool) -> _Maybe:
        entry: _Maybe = state
        for _ in range(2):  # what the first round began the second may find
            self.breaks.append([])
            self.continues.append([])
            self.depths.append(len(self.finals))
            end = self.block(node.body, entry)
            self.depths.pop()
            again = self.continues.pop()
            broken = self.breaks.pop()
            entry = _meet(entry, end, *again)
        left = None if endless else self.block(node.orelse, entry)
        return _meet(left, *broken)

    def _try(self, node: ast.Try | ast.TryStar, state: State) -> _Maybe:
        if node.finalbody:
            self.finals.append(node.finalbody)
        outer, self.begun = self.begun, set()
        end = self.block(node.orelse, self.block(node.body, state))
        failed = State(state.done, state.owed | self.begun)
        self.begun |= outer
        ends = [end, *(self.block(handler.body, failed) for handler in node.handlers)]
        if node.finalbody:
            self.finals.pop()
        return self.block(node.finalbody, _meet(*ends))

    def value(self, node: ast.AST | None, state: State) -> State:
        """The state after an expression; what a condition in it may skip is not done for sure."""
        if node is None or isinstance(node, ast.Lambda):
            return state
        if isinstance(node, ast.BoolOp):
            first = self.value(node.values[0], state)
            rest = first
            for value in node.values[1:]:
                rest = self.value(value, rest)
            return State(first.done, first.owed | rest.owed)
        if isinstance(node, ast.IfExp):
            state = self.value(node.test, state)
            met = _meet(self.value(node.body, state), self.value(node.orelse, state))
            assert met is not None
            return met
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            inner = state
            for child in ast.iter_child_nodes(node):
                inner = self.value(child, inner)
            return State(state.done, state.owed | inner.owed)
        for part in _evaluated(node):
            state = self.value(part, state)
        return self._event(node, state)

    def _event(self, node: ast.AST, state: State) -> State:
        event = self.events(node)
        if event is None:
            return state
        self.found.events.add(node)
        if event.needs and event.needs not in state.done:
            self.found.early[node] = event.needs
        owed = frozenset() if event.settles else state.owed
        if event.begins:
            owed |= {node}
            self.begun.add(node)
        return State(state.done | {event.does} if event.does else state.done, owed)


def _takes_all(case: ast.match_case) -> bool:
    return case.guard is None and isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None


def _is_true(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """Child nodes in the order in which they are evaluated: what is assigned before where it goes."""
    if isinstance(node, ast.Assign):
        yield node.value
        yield from node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
        if node.value is not None:
            yield node.value
        yield node.target
    else:
        yield from ast.iter_child_nodes(node)
