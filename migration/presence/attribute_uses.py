"""Every attribute that a file touches, on whatever object: what code outside a class may do to it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from migration.code.facts import dotted, parameters, self_name
from migration.code.module_names import import_origins
from migration.code.structure import FunctionNode

UseKind = Literal["load", "store", "delete", "test"]
_CONTEXTS: dict[type[ast.expr_context], UseKind] = {
    ast.Load: "load",
    ast.Store: "store",
    ast.Del: "delete",
}
_CALLS: dict[str, UseKind] = {
    "hasattr": "test",
    "getattr": "test",
    "setattr": "store",
    "delattr": "delete",
    "object.__setattr__": "store",
    "object.__delattr__": "delete",
}


class AttributeUse(NamedTuple):
    """`on_self`: on the first parameter of a method of a class of the file."""

    kind: UseKind
    node: ast.expr
    on_self: bool


@dataclass(frozen=True)
class ModuleUses:
    """`by_name`: uses of an attribute. Names that any scope binds: `variables` (parameters too),
    `definitions`, and `imports` with what each of them was imported as.

    `computed_deletes`: lines of `delattr` with a computed name on something else than self.
    `bare_new`: lines where an object is made by `__new__`, so that no `__init__` runs.
    `init_again`: lines that may run `__init__` on an object that has been made already.
    """

    by_name: dict[str, tuple[AttributeUse, ...]]
    variables: frozenset[str]
    definitions: frozenset[str]
    imports: dict[str, frozenset[str]]
    computed_deletes: tuple[int, ...]
    bare_new: tuple[int, ...]
    init_again: tuple[int, ...]

    @cached_property
    def bound(self) -> frozenset[str]:
        return self.variables | self.definitions | self.imports.keys()

    def is_certain(self, name: str) -> bool:
        """Whether a name means the same in every scope of the file: no variable, at most one import."""
        return name not in self.variables and len(self.imports.get(name, ())) < 2

    @cached_property
    def stored(self) -> frozenset[str]:
        return frozenset(
            name for name, uses in self.by_name.items() if any(use.kind == "store" for use in uses)
        )


def module_uses(tree: ast.Module) -> ModuleUses:
    """One pass over a file."""
    found: dict[str, list[AttributeUse]] = defaultdict(list)
    variables: set[str] = set()
    definitions: set[str] = set()
    imports: dict[str, set[str]] = defaultdict(set)
    deletes: list[int] = []
    news: list[int] = []
    again: list[int] = []
    for node, inside in _nodes(tree):
        if isinstance(node, ast.Attribute):
            found[node.attr].append(AttributeUse(_CONTEXTS[type(node.ctx)], node, inside.is_self(node.value)))
            if node.attr == "__new__" and not inside.new:
                news.append(node.lineno)
            if node.attr == "__init__" and inside.is_self(node.value):
                again.append(node.lineno)
        elif isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                variables.add(node.id)
        elif isinstance(node, ast.arg):
            variables.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            definitions.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for imported, origin in import_origins(node).items():
                imports[imported].add(origin)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            if node.name:
                variables.add(node.name)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and _inits_again(node, node.func, inside):
                again.append(node.lineno)
            kind = _CALLS.get(dotted(node.func))
            if kind is None or len(node.args) < 2:
                continue
            on_self = inside.is_self(node.args[0])
            name = node.args[1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                found[name.value].append(AttributeUse(kind, node, on_self))
            elif kind == "delete" and not on_self:
                deletes.append(node.lineno)
    return ModuleUses(
        {name: tuple(uses) for name, uses in found.items()},
        frozenset(variables),
        frozenset(definitions),
        {name: frozenset(origins) for name, origins in imports.items()},
        tuple(deletes),
        tuple(news),
        tuple(sorted(set(again))),
    )


class _Inside(NamedTuple):
    """Where a node stands: directly in a class body, in a method whose self has this name, in `__new__`, in
    the scope of an `__init__` itself."""

    class_body: bool = False
    self_name: str | None = None
    new: bool = False
    init: bool = False

    def is_self(self, node: ast.expr) -> bool:
        return self.self_name is not None and isinstance(node, ast.Name) and node.id == self.self_name


def _inits_again(call: ast.Call, function: ast.Attribute, inside: _Inside) -> bool:
    """A call of some `__init__` that is not the one of a base class from an `__init__`."""
    if function.attr != "__init__":
        return False
    on_super = isinstance(function.value, ast.Call) and dotted(function.value.func) == "super"
    return not (inside.init and (on_super or (call.args and inside.is_self(call.args[0]))))


def takes_self(node: FunctionNode) -> bool:
    """Whether the first parameter of a function in a class body is an instance."""
    implicit = node.name in ("__new__", "__init_subclass__", "__class_getitem__")
    decorators = {dotted(decorator) for decorator in node.decorator_list}
    return not implicit and "classmethod" not in decorators and self_name(node) is not None


def _nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, _Inside]]:
    stack: list[tuple[ast.AST, _Inside]] = [(tree, _Inside())]
    while stack:
        node, inside = stack.pop()
        yield node, inside
        if isinstance(node, ast.ClassDef):
            inside = _Inside(class_body=True)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            new = inside.new or node.name == "__new__"
            if inside.class_body:
                own = self_name(node) if takes_self(node) else None
                inside = _Inside(False, own, new, node.name == "__init__")
            else:
                hidden = inside.self_name in parameters(node.args)
                inside = _Inside(False, None if hidden else inside.self_name, new)
        elif isinstance(node, ast.Lambda):
            hidden = inside.self_name in parameters(node.args)
            inside = _Inside(False, None if hidden else inside.self_name, inside.new)
        stack.extend((child, inside) for child in ast.iter_child_nodes(node))
