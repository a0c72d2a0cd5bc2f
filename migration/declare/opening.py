"""The statements that `__init__` begins with and that reach no method of the object: nothing can ask yet.

A declaration may stand in front of, between and behind them, and nowhere else. A call is no obstacle as long
as self is not in it: what has never seen the object cannot ask it for an attribute.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from migration.code.structure import FunctionNode
from migration.presence.world import World

#: Builtins that hand out all local names, self among them.
_ALL_LOCALS = frozenset(("dir", "eval", "exec", "locals", "vars"))
#: With those that reach self, or its class, without naming it.
_SEES_SELF = _ALL_LOCALS | {"super", "__class__"}


def opening(world: World, init: FunctionNode, names: Collection[str]) -> tuple[ast.stmt, ...]:
    """The statements at the start of `__init__`, docstring left out, before which nothing asks for `names`."""
    checked = _Opening(world, init, frozenset(names))
    return tuple(checked.statements())


def own_assignments(statement: ast.stmt, owner: str) -> list[str]:
    """Attributes of `owner` that a plain assignment gives a value."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    return [
        target.attr
        for target in targets
        if isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id == owner
    ]


def is_super_init(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__"


class _Opening:
    def __init__(self, world: World, init: FunctionNode, names: frozenset[str]) -> None:
        self.world = world
        self.init = init
        self.names = names
        self.owner = [*init.args.posonlyargs, *init.args.args][0].arg

    def statements(self) -> Iterator[ast.stmt]:
        kin, body = self.world.kin, self.init.body
        if kin.unknown_bases or kin.unknown_mixins or kin.too_many:
            return  # any name may be a property, or a method that calls back
        for statement in body[ast.get_docstring(self.init, clean=False) is not None :]:
            if not self._is_quiet(statement):
                return
            yield statement

    def _is_quiet(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.Pass):
            return True
        if is_super_init(statement):
            assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
            given = [*statement.value.args, *(keyword.value for keyword in statement.value.keywords)]
            return all(map(self._is_apart, given)) and self._bases_do_not_ask()
        if isinstance(statement, ast.Expr):
            return self._is_apart(statement.value)
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            return all(map(self._is_plain_target, targets)) and (
                statement.value is None or self._is_apart(statement.value)
            )
        return False

    def _is_plain_target(self, target: ast.expr) -> bool:
        """A local name, or an attribute of self whose assignment runs no code."""
        if isinstance(target, ast.Name):
            return True
        if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)):
            return False
        kinds = {known.body.kind(target.attr) for known in self.world.kin.all}
        special = target.attr.startswith("__") and target.attr.endswith("__")
        return target.value.id == self.owner and not special and kinds <= {None, "attribute"}

    def _is_apart(self, value: ast.expr) -> bool:
        """Whether an expression uses self for nothing but attributes that only the object itself holds."""
        owners = {
            id(node.value)
            for node in ast.walk(value)
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and isinstance(node.value, ast.Name)
            and node.value.id == self.owner
            and self._is_held(node.attr)
        }
        for node in ast.walk(value):
            if isinstance(node, ast.Name):
                if node.id in _SEES_SELF or (node.id == self.owner and id(node) not in owners):
                    return False
        return True

    def _is_held(self, name: str) -> bool:
        bound = any(name in known.body.bindings for known in self.world.kin.all)
        return not (bound or name.startswith("__"))

    def _bases_do_not_ask(self) -> bool:
        """Whether `super().__init__()` runs no code that touches one of the names."""
        reached = self.world.presence.reached_by_super_init()
        if reached is None:
            return False
        bases = self.world.kin.order[1:]
        for known, function, trace in self.world.everywhere:
            if function.name in reached or (function.name == "__init__" and known in bases):
                if any(isinstance(n, ast.Name) and n.id in _ALL_LOCALS for n in ast.walk(function)):
                    return False
                touched = {test.attribute for test in trace.tests}
                touched |= {removal.attribute for removal in trace.removals}
                touched |= {load.attribute for load in trace.loads}
                touched |= {write.attribute for write in trace.writes}
                if touched & {None, *self.names}:
                    return False
        return True
