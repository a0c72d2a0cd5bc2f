"""What a statement does to the local names, whatever stands around it.

`reads` may miss nothing and `must` may promise nothing that does not hold on every path; the rest
errs on the same side. Loops, branches and exceptions are folded in, so effects compose in sequence.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from migration.split.scope import Comprehension, Nested, Scope, bound_names, outside_parts


@dataclass(frozen=True, slots=True)
class Effect:
    """reads: needs the value from before; must: bound at the normal end; may: bound somewhere;
    lost: unbound somewhere; gone: surely unbound at the normal end; mentions: named at all;
    falls: it can end normally.
    """

    reads: int = 0
    must: int = 0
    may: int = 0
    lost: int = 0
    gone: int = 0
    mentions: int = 0
    falls: bool = True


NOTHING = Effect()


def then(first: Effect, second: Effect) -> Effect:
    """One after the other."""
    if second is NOTHING:
        return first
    mentions, may = first.mentions | second.mentions, first.may | second.may
    if not first.falls:
        return replace(first, mentions=mentions, may=may, lost=first.lost | second.lost)
    return Effect(
        first.reads | (second.reads & ~first.must),
        (first.must & ~second.lost) | second.must,
        may,
        first.lost | second.lost,
        (first.gone & ~second.may) | second.gone,
        mentions,
        second.falls,
    )


def either(one: Effect, other: Effect) -> Effect:
    """One or the other; names are bound at the end where both ends that are reached bind them."""
    if one.falls and other.falls:
        must, gone = one.must & other.must, one.gone & other.gone
    else:
        must, gone = (one.must, one.gone) if one.falls else (other.must, other.gone)
    return Effect(
        one.reads | other.reads,
        must,
        one.may | other.may,
        one.lost | other.lost,
        gone,
        one.mentions | other.mentions,
        one.falls or other.falls,
    )


def maybe(effect: Effect) -> Effect:
    return either(NOTHING, effect)


def partly(effect: Effect) -> Effect:
    """The effect broken off at an unknown point by an exception that somebody catches."""
    return Effect(effect.reads, 0, effect.may, effect.lost, 0, effect.mentions, True)


def in_turn(effects: Iterable[Effect]) -> Effect:
    found = NOTHING
    for effect in effects:
        found = then(found, effect)
    return found


class Effects:
    """Effects in one method, computed once a node; `propagates` says whether a `with` item lets exceptions out."""

    def __init__(self, scope: Scope, propagates: Callable[[ast.withitem], bool]) -> None:
        self._scope = scope
        self.propagates = propagates
        self._known: dict[int, tuple[ast.AST, Effect]] = {}

    def bind(self, *names: str) -> Effect:
        mask = self._scope.mask(names)
        return Effect(must=mask, may=mask, mentions=mask) if mask else NOTHING

    def unbind(self, name: str | None) -> Effect:
        mask = self._scope.mask([name]) if name else 0
        return Effect(lost=mask, gone=mask, mentions=mask) if mask else NOTHING

    def _read(self, mask: int) -> Effect:
        return Effect(reads=mask, mentions=mask) if mask else NOTHING

    def body(self, statements: Iterable[ast.stmt]) -> Effect:
        return in_turn(map(self.of, statements))

    def of(self, node: ast.AST) -> Effect:
        """The effect of a statement or an expression."""
        found = self._known.get(id(node))
        if found is None:
            handler = getattr(self, f"_{type(node).__name__}", self._parts)
            found = self._known[id(node)] = (node, handler(node))
        return found[1]

    def all(self, nodes: Iterable[ast.AST | None]) -> Effect:
        return in_turn(self.of(node) for node in nodes if node is not None)

    def _parts(self, node: ast.AST) -> Effect:
        if isinstance(node, Nested):
            return self._nested(node)
        return then(self.all(ast.iter_child_nodes(node)), self.bind(*bound_names(node)))

    # Expressions: in the order of evaluation, and apart what may not be evaluated at all.

    def _Name(self, node: ast.Name) -> Effect:
        mask = self._scope.mask([node.id])
        if isinstance(node.ctx, ast.Store):
            return Effect(must=mask, may=mask, mentions=mask) if mask else NOTHING
        if isinstance(node.ctx, ast.Del):
            return Effect(reads=mask, lost=mask, gone=mask, mentions=mask)
        return self._read(mask)

    def _NamedExpr(self, node: ast.NamedExpr) -> Effect:
        return self.all((node.value, node.target))

    def _nested(self, node: Nested) -> Effect:
        found = then(self.all(outside_parts(node)), self._read(self._scope.captured(node)))
        if isinstance(node, Comprehension):
            walrus = (part.target.id for part in ast.walk(node) if isinstance(part, ast.NamedExpr))
            return then(found, maybe(self.bind(*walrus)))
        return then(found, self.bind(*bound_names(node)))

    def _lazily(self, parts: Iterable[ast.expr]) -> Effect:
        found = NOTHING
        for part in reversed(list(parts)):
            found = then(self.of(part), maybe(found) if found is not NOTHING else NOTHING)
        return found

    def _BoolOp(self, node: ast.BoolOp) -> Effect:
        return self._lazily(node.values)

    def _Compare(self, node: ast.Compare) -> Effect:
        return then(self.of(node.left), self._lazily(node.comparators))

    def _IfExp(self, node: ast.IfExp) -> Effect:
        return then(self.of(node.test), either(self.of(node.body), self.of(node.orelse)))

    def _Dict(self, node: ast.Dict) -> Effect:
        return self.all(part for pair in zip(node.keys, node.values, strict=True) for part in pair)

    # Statements

    def _Assign(self, node: ast.Assign) -> Effect:
        return self.all((node.value, *node.targets))

    def _AugAssign(self, node: ast.AugAssign) -> Effect:
        if isinstance(node.target, ast.Name):
            read = self._read(self._scope.mask([node.target.id]))
            return in_turn((read, self.of(node.value), self.of(node.target)))
        return self.all((node.target, node.value))

    def _AnnAssign(self, node: ast.AnnAssign) -> Effect:
        if node.value is not None:
            return self.all((node.value, node.target))
        if isinstance(node.target, ast.Name):
            return Effect(mentions=self._scope.mask([node.target.id]))
        return self.all(ast.iter_child_nodes(node.target))

    def _Return(self, node: ast.Return | ast.Raise) -> Effect:
        return then(self.all(ast.iter_child_nodes(node)), Effect(falls=False))

    _Raise = _Return

    def _Break(self, node: ast.Break | ast.Continue) -> Effect:
        return Effect(falls=False)

    _Continue = _Break

    def _TypeAlias(self, node: ast.AST) -> Effect:
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        bound = getattr(node, "name", None)
        names -= {bound.id} if isinstance(bound, ast.Name) else set()
        return then(self._read(self._scope.mask(names)), self.of(bound) if bound else NOTHING)

    def _If(self, node: ast.If) -> Effect:
        return then(self.of(node.test), either(self.body(node.body), self.body(node.orelse)))

    def _For(self, node: ast.For | ast.AsyncFor) -> Effect:
        once = replace(then(self.of(node.target), self.body(node.body)), falls=True)
        return in_turn((self.of(node.iter), maybe(once), partly(self.body(node.orelse))))

    _AsyncFor = _For

    def _While(self, node: ast.While) -> Effect:
        once = replace(self.body(node.body), falls=True)
        found = in_turn((self.of(node.test), maybe(once), partly(self.body(node.orelse))))
        return replace(found, falls=not is_endless(node))

    def _With(self, node: ast.With | ast.AsyncWith) -> Effect:
        items = self.all(part for item in node.items for part in (item.context_expr, item.optional_vars))
        found = then(items, self.body(node.body))
        return found if all(map(self.propagates, node.items)) else partly(found)

    _AsyncWith = _With

    def _Try(self, node: ast.Try) -> Effect:
        body = self.body(node.body)
        found = then(body, self.body(node.orelse))
        for handler in node.handlers:
            caught = in_turn((self.all((handler.type,)), self.bind(*bound_names(handler))))
            caught = in_turn((caught, self.body(handler.body), self.unbind(handler.name)))
            found = either(found, then(partly(body), caught))
        final = self.body(node.finalbody)
        # An exception may lead into `finally` before anything was bound.
        return replace(then(found, final), reads=found.reads | final.reads)

    _TryStar = _Try

    def _Match(self, node: ast.Match) -> Effect:
        found = NOTHING
        for case in reversed(node.cases):
            pattern, guard = self.of(case.pattern), self.all((case.guard,))
            met = in_turn((pattern, guard, self.body(case.body)))
            found = (
                met if is_irrefutable(case) else either(met, in_turn((maybe(pattern), maybe(guard), found)))
            )
        return then(self.of(node.subject), found)


def is_irrefutable(case: ast.match_case) -> bool:
    """`case _:` and `case name:` without a guard."""
    return isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None


def is_endless(node: ast.While) -> bool:
    """`while True` that nothing leaves by `break`: what follows is never reached."""
    return is_constant_true(node.test) and not any(has_break(part) for part in node.body)


def is_constant_true(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def has_break(node: ast.stmt) -> bool:
    """A `break` in `node` that leaves a loop around it."""
    if isinstance(node, ast.Break):
        return True
    if isinstance(node, ast.For | ast.AsyncFor | ast.While):
        return any(map(has_break, node.orelse))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return any(map(has_break, inner_statements(node)))


def inner_statements(node: ast.stmt) -> list[ast.stmt]:
    """The statements directly inside a compound statement, of all its branches."""
    found = [part for field in ("body", "orelse", "finalbody") for part in getattr(node, field, ())]
    for branch in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        found += branch.body
    return found
