"""May this run of statements become a helper, and what would go in and come out?

Every reason against a cut is an `Obstacle` with a code of the catalogue; nothing is decided by
looking at what would be convenient.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property

from migration.code.facts import dotted, own_scope
from migration.code.structure import FunctionNode
from migration.split.bound import Bound, BoundNames
from migration.split.effects import NOTHING, Effect, Effects, then
from migration.split.layout import Block, Item
from migration.split.live import LiveNames
from migration.split.scope import Scope
from migration.split.traits import Obstacle, TraitReader, Traits


@dataclass(frozen=True)
class Run:
    """Statements first..last-1 of a block as a helper: its parameters and results, in order.

    `returns`: the call is the operand of a `return`, because the run decides what the method returns.
    """

    block: Block
    first: int
    last: int
    parameters: tuple[str, ...]
    results: tuple[str, ...]
    returns: bool
    awaits: bool

    @property
    def items(self) -> tuple[Item, ...]:
        return self.block.items[self.first : self.last]

    @property
    def first_line(self) -> int:
        return self.items[0].lead_line

    @property
    def last_line(self) -> int:
        return self.items[-1].last_line


@dataclass
class Cutter:
    """Judges the runs of one method. `cap` limits parameters plus results; `doubtful` are the
    context managers that may swallow exceptions; `together` are names whose uses may not be spread over
    two pieces unless they are passed."""

    node: FunctionNode
    scope: Scope
    effects: Effects
    bound: BoundNames
    live: LiveNames
    traits: TraitReader
    cap: int
    doubtful: tuple[str, ...] = ()
    together: frozenset[str] = frozenset()

    @cached_property
    def _is_async_generator(self) -> bool:
        return isinstance(self.node, ast.AsyncFunctionDef) and any(
            isinstance(part, ast.Yield) for part in own_scope(self.node)
        )

    @property
    def _kept_together(self) -> int:
        return self.scope.mask(self.together)

    @cached_property
    def _watched(self) -> tuple[int, str]:
        """(last line whose locals some call looks at as a whole, that call); a loop around it counts."""
        found = (0, "")
        parts = [part for statement in self.node.body for part in ast.walk(statement)]
        loops = [part for part in parts if isinstance(part, ast.For | ast.AsyncFor | ast.While)]
        for part in parts:
            if isinstance(part, ast.Call):
                path = dotted(part.func)
                if path in ("locals", "eval", "exec") or (path in ("vars", "dir") and not part.args):
                    ends = [loop.end_lineno or 0 for loop in loops if loop.lineno <= part.lineno]
                    last = max([part.lineno, *(end for end in ends if end >= part.lineno)])
                    found = max(found, (last, f"{path}()"))
        return found

    def judge(self, block: Block, first: int, last: int, effect: Effect) -> Run | Obstacle:
        """The run, or the first reason against it; `effect` is that of its statements in sequence."""
        items = block.items[first:last]
        line = items[0].first_line
        traits = [self.traits.of(item.node) for item in items]
        for found in traits:
            if obstacle := found.blocked or found.jump:
                return obstacle
        if line <= self._watched[0]:
            return Obstacle("MG504", line, f"{self._watched[1]} further down sees the locals", True)
        if not block.can_cut(first):
            return Obstacle("MG516", line, "shares its line with what is before it", True)
        if not block.can_cut(last):
            return Obstacle("MG516", items[-1].last_line, "shares its line with what is after it")
        start, end = self.bound.before[id(items[0].node)], self.bound.after[id(items[-1].node)]
        if start is None:
            return Obstacle("MG518", line, "is never reached", True)
        returned = next((found.returns for found in traits if found.returns), 0)
        ends_method = block.is_last and last == len(block.items)
        if returned and (self._is_async_generator or not (end is None or ends_method)):
            return Obstacle("MG509", returned, "return leaves the method from the middle of the block")
        flow = self._flow(block, items, effect, start, None if returned else end)
        if isinstance(flow, Obstacle):
            return flow
        parameters, results = flow
        obstacle = self._closures(block, items, effect) or self._lifetimes(
            block, items, effect, traits, start, flow
        )
        if obstacle is not None:
            return obstacle
        if (count := parameters.bit_count() + results.bit_count()) > self.cap:
            return Obstacle("MG515", line, f"{count} names would cross the cut, and {self.cap} may")
        names = self.scope.names
        awaits = any(found.awaits for found in traits) and isinstance(self.node, ast.AsyncFunctionDef)
        return Run(block, first, last, names(parameters), names(results), bool(returned), awaits)

    def _flow(
        self, block: Block, items: tuple[Item, ...], effect: Effect, start: Bound, end: Bound | None
    ) -> tuple[int, int] | Obstacle:
        """Masks of parameters and results; `end` is None where nothing goes on after the run."""
        line, final = items[0].first_line, items[-1].node
        if unsure := effect.reads & start.may & ~start.must:
            return self._named("MG511", line, unsure, "may be unbound when the block begins")
        parameters, results = effect.reads & start.must, 0
        if end is not None:
            results = effect.may & self.live.after[id(final)]
            if unsure := results & ~end.must:
                return self._named("MG511", line, unsure, "may be unbound when the block ends")
            parameters |= results & start.must & ~effect.must
        if lost := effect.may & self.live.raised[id(final)]:
            message = "needed by an except, finally or with around the block, even if the block raises"
            return self._named("MG514", line, lost, message)
        if unbound := effect.mentions & ~parameters & ~effect.may:
            return self._named("MG518", line, unbound, "mentioned where it cannot have a value")
        if homeless := self._bound_only_here(effect.may & ~results, items):
            return self._named("MG518", line, homeless, "mentioned elsewhere, bound only here")
        apart = effect.mentions & self._kept_together & ~parameters & ~results
        if apart and (outside := self._also_outside(apart, items)):
            return self._named("MG518", line, outside, "bound on one side of the cut, used on the other")
        return parameters, results

    def _bound_only_here(self, mask: int, items: tuple[Item, ...]) -> int:
        first, last = items[0].first_line, items[-1].last_line
        found = 0
        for bit in _bits(mask):
            if all(first <= site <= last for site in self.scope.sites.get(bit, ())):
                found |= bit
        return self._also_outside(found, items)

    def _also_outside(self, mask: int, items: tuple[Item, ...]) -> int:
        first, last = items[0].first_line, items[-1].last_line
        found = 0
        for bit in _bits(mask):
            if any(not first <= place <= last for place in self.scope.places.get(bit, ())):
                found |= bit
        return found

    def _closures(self, block: Block, items: tuple[Item, ...], effect: Effect) -> Obstacle | None:
        """A closure sees later values of a name it captures: all bindings must stay on its side."""
        first, last = items[0].first_line, items[-1].last_line
        begin, end = block.loop or (first, last)
        inside = outside = 0
        for closure in self.scope.closures:
            if first <= closure.line <= last:
                inside |= closure.names
            elif closure.line < first or closure.line <= end:
                outside |= closure.names
        message = "captured by a nested function, which would no longer see it rebound"
        if block.loop and (rebound := inside & effect.may):
            return self._named("MG513", first, rebound, message)
        for bit in _bits(inside):
            for place in self.scope.sites.get(bit, ()):
                if place >= begin and not first <= place <= last:
                    return self._named("MG513", first, bit, message)
        if rebound := outside & (effect.may | effect.lost):
            return self._named("MG513", first, rebound, message)
        if shared := self._also_outside(effect.mentions & self.scope.shared, items):
            return self._named("MG513", first, shared, "bound by a nested function or comprehension")
        return None

    def _lifetimes(
        self,
        block: Block,
        items: tuple[Item, ...],
        effect: Effect,
        traits: list[Traits],
        start: Bound,
        flow: tuple[int, int],
    ) -> Obstacle | None:
        """The caller of a helper holds what it passes, and lets go of what the helper alone named."""
        line, (parameters, results) = items[0].first_line, flow
        ends_method = block.is_last and items[-1] is block.items[-1]
        lost = 0 if ends_method else effect.may & ~results
        for item, found in zip(items, traits, strict=True):
            if held := found.deleted & start.may:
                return self._named(
                    "MG512", item.first_line, held, "deleted here, while the method would still hold it"
                )
            if kept := found.keepers & lost:
                return self._named("MG512", item.first_line, kept, "let go when the helper returns")
        if caught := self.scope.mask(block.handled) & parameters:
            return self._named(
                "MG512", line, caught, "unbound by its except clause, while the helper would still hold it"
            )
        return None

    def _named(self, code: str, line: int, mask: int, message: str) -> Obstacle:
        return Obstacle(code, line, f"{message}: {', '.join(self.scope.names(mask))}")

    def effect(self, item: Item, before: Effect = NOTHING) -> Effect:
        return then(before, self.effects.of(item.node))


def _bits(mask: int) -> list[int]:
    found: list[int] = []
    while mask:
        found.append(mask & -mask)
        mask &= mask - 1
    return found
