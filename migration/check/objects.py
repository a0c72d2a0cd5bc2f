"""Which objects an expression may stand for, however it is spelled.

An object is named by the way to it: `worker.core_engine.view`. In a handler `self._host.core_engine.view`
is that object, where the handle `host` is the worker seen in part; so is `engine.view` behind
`engine = self._host.core_engine`, `getattr(engine, "view", None)`, `vars(engine)["view"]`, and the call of a
method of the handler that returns it. What is reached through a handle of its own is named by the handle.

Order is not followed: a name stands for whatever is assigned to it anywhere in its function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from migration.code.facts import dotted, parameters, self_name
from migration.code.structure import FunctionNode, Method
from migration.recipe import Recipe

#: The first part is the root: `worker`, `handler`, `snapshot`, or a handle in angle brackets.
Way = tuple[str, ...]
Ways = frozenset[Way]
WORKER, HANDLER, SNAPSHOT = "worker", "handler", "snapshot"
_NONE: Ways = frozenset()
_ASKING = ("hasattr", "getattr", "setattr", "delattr")

Kind = Literal["read", "write", "delete", "call", "ask"]


@dataclass(frozen=True)
class Access:
    """One mention of an attribute. `ways` is empty where nothing shows whose attribute it is.

    `ask` is a question whether it is there: hasattr, getattr with a default, `in vars(x)`.
    """

    name: str
    ways: Ways
    kind: Kind
    node: ast.expr
    #: What the attribute is looked up on.
    owner: Ways


def handle_root(name: str) -> str:
    return f"<{name}>"


def as_way(expression: str) -> Way:
    """`self.core_engine.view` of a recipe."""
    return (WORKER, *expression.split(".")[1:])


class Objects:
    """What the names in the methods of one class stand for."""

    def __init__(self, methods: Sequence[Method]) -> None:
        self._methods = methods
        self._returned: dict[str, Ways] = {}
        self._known: dict[int, tuple[Access, ...]] = {}

    def member(self, name: str) -> Ways:
        """What `self.<name>` stands for."""
        raise NotImplementedError

    def accesses(self, node: FunctionNode) -> tuple[Access, ...]:
        """Every attribute that a function mentions, in the order of the lines."""
        if id(node) not in self._known:
            found = list(_Function(self, node, {}).accesses())
            self._known[id(node)] = tuple(
                sorted(found, key=lambda one: (one.node.lineno, one.node.col_offset))
            )
        return self._known[id(node)]

    def ways(self, node: FunctionNode, expression: ast.expr) -> Ways:
        """What one expression in the function's own scope stands for."""
        return _Function(self, node, {}).ways(expression)

    def returned(self, name: str) -> Ways:
        """What a method of the class returns, as far as it is an object with a name."""
        if name not in self._returned:
            self._returned[name] = _NONE  # of itself a recursive method shows nothing
            for method in self._methods:
                if method.name == name:
                    self._returned[name] |= _Function(self, method.node, {}).results()
        return self._returned[name]


class WorkerObjects(Objects):
    def member(self, name: str) -> Ways:
        return frozenset({(WORKER, name)})


class HandlerObjects(Objects):
    """`methods` are those of the handler and of what it inherits, without the wiring of the handles."""

    def __init__(self, recipe: Recipe, methods: Sequence[Method]) -> None:
        super().__init__(methods)
        self._roots: dict[str, Way] = {
            f"_{handle.name}": (WORKER,) if handle.is_worker else (handle_root(handle.name),)
            for handle in recipe.handles
        }
        if recipe.snapshot is not None:
            self._roots[f"_{recipe.snapshot.name}"] = (SNAPSHOT,)
        self._properties = {
            method.name
            for method in methods
            if any(dotted(d) == "property" for d in method.node.decorator_list)
        }

    def member(self, name: str) -> Ways:
        if name in self._roots:
            return frozenset({self._roots[name]})
        own: Ways = frozenset({(HANDLER, name)})
        return own | self.returned(name) if name in self._properties else own


class _Function:
    """One function with the names that it sees."""

    def __init__(
        self,
        objects: Objects,
        node: FunctionNode | ast.Lambda,
        outer: Mapping[str, Ways],
        *,
        nested: bool = False,
    ) -> None:
        self.objects = objects
        self.node = node
        self.self_name = None if nested or isinstance(node, ast.Lambda) else self_name(node)
        self.names: dict[str, Ways] = {
            name: ways for name, ways in outer.items() if name not in parameters(node.args)
        }
        self._own: list[ast.AST] = list(_own_nodes(node))
        for _ in range(4):  # aliases of aliases
            before = dict(self.names)
            for part in self._own:
                self._bind(part)
            if before == self.names:
                break

    def results(self) -> Ways:
        found = _NONE
        for part in self._own:
            if isinstance(part, ast.Return) and part.value is not None:
                found |= self.ways(part.value)
        return found

    def ways(self, node: ast.expr) -> Ways:
        match node:
            case ast.Name():
                if node.id == self.self_name:
                    return frozenset({("self",)})
                return self.names.get(node.id, _NONE)
            case ast.Attribute():
                return self._then(self.ways(node.value), node.attr)
            case ast.Subscript(value=value, slice=ast.Constant(value=str(name))):
                space = _namespace(value)
                return self._then(self.ways(space), name) if space is not None else _NONE
            case ast.Call():
                return self._call(node)
            case ast.IfExp():
                return self.ways(node.body) | self.ways(node.orelse)
            case ast.BoolOp():
                return frozenset(way for value in node.values for way in self.ways(value))
            case ast.NamedExpr() | ast.Await():
                return self.ways(node.value)
        return _NONE

    def _call(self, node: ast.Call) -> Ways:
        if asked := _asked(node):
            return self._then(self.ways(node.args[0]), asked)
        if dotted(node.func).rpartition(".")[2] == "cast" and len(node.args) == 2:
            return self.ways(node.args[1])
        if isinstance(node.func, ast.Attribute) and ("self",) in self.ways(node.func.value):
            return self.objects.returned(node.func.attr)
        return _NONE

    def _then(self, owner: Ways, name: str) -> Ways:
        found = _NONE
        for way in owner:
            found |= self.objects.member(name) if way == ("self",) else {(*way, name)}
        return found

    def _bind(self, part: ast.AST) -> None:
        match part:
            case ast.Assign():
                for target in part.targets:
                    self._target(target, part.value)
            case ast.AnnAssign() | ast.NamedExpr() if part.value is not None:
                self._target(part.target, part.value)
            case ast.withitem(optional_vars=ast.Name()):
                assert part.optional_vars is not None
                self._target(part.optional_vars, part.context_expr)

    def _target(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            if found := self.ways(value):
                self.names[target.id] = self.names.get(target.id, _NONE) | found
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            if len(target.elts) == len(value.elts):
                for one, other in zip(target.elts, value.elts, strict=True):
                    self._target(one, other)

    def accesses(self) -> Iterator[Access]:
        called = {id(part.func) for part in self._own if isinstance(part, ast.Call)}
        visible = dict(self.names)
        if self.self_name is not None:
            visible[self.self_name] = frozenset({("self",)})
        for part in self._own:
            if isinstance(part, ast.Attribute):
                owner = self.ways(part.value)
                kind: Kind = "call" if id(part) in called else "read"
                if isinstance(part.ctx, ast.Store):
                    kind = "write"
                elif isinstance(part.ctx, ast.Del):
                    kind = "delete"
                yield Access(part.attr, self._then(owner, part.attr), kind, part, owner)
            elif isinstance(part, ast.Call) and (asked := _asked(part)):
                owner = self.ways(part.args[0])
                yield Access(asked, self._then(owner, asked), _kind_of(part), part, owner)
            elif isinstance(part, ast.Subscript | ast.Compare):
                yield from self._by_namespace(part)
            elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield from _Function(self.objects, part, visible, nested=True).accesses()
            elif isinstance(part, ast.ClassDef):
                for inner in part.body:
                    if isinstance(inner, FunctionNode):
                        yield from _Function(self.objects, inner, visible, nested=True).accesses()

    def _by_namespace(self, part: ast.Subscript | ast.Compare) -> Iterator[Access]:
        """`vars(x)["name"]`, and `"name" in vars(x)`."""
        if isinstance(part, ast.Subscript):
            space, key = _namespace(part.value), part.slice
            kind: Kind = "read" if isinstance(part.ctx, ast.Load) else "write"
        else:
            space, key, kind = _namespace(part.comparators[0]), part.left, "ask"
        if space is not None and isinstance(key, ast.Constant) and isinstance(key.value, str):
            owner = self.ways(space)
            yield Access(key.value, self._then(owner, key.value), kind, part, owner)


def _own_nodes(node: FunctionNode | ast.Lambda) -> Iterator[ast.AST]:
    """Nodes of the function's own scope; nested functions are given, not entered."""
    stack: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(reversed(node.body))
    while stack:
        current = stack.pop()
        yield current
        if not isinstance(current, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            stack.extend(reversed(list(ast.iter_child_nodes(current))))


def _namespace(node: ast.expr) -> ast.expr | None:
    """x of `vars(x)` and `x.__dict__`."""
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        return node.value
    if isinstance(node, ast.Call) and dotted(node.func) == "vars" and len(node.args) == 1:
        return node.args[0]
    return None


def _asked(node: ast.Call) -> str:
    """The attribute of `getattr(x, "name")` and its like, "" for another call."""
    if isinstance(node.func, ast.Name) and node.func.id in _ASKING and len(node.args) > 1:
        name = node.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            return name.value
    return ""


def _kind_of(node: ast.Call) -> Kind:
    name = dotted(node.func)
    if name == "setattr":
        return "write"
    if name == "delattr":
        return "delete"
    return "ask" if name == "hasattr" or len(node.args) > 2 else "read"
