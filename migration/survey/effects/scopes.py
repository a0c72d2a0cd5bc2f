"""What a name means inside a method: followed through local aliases and imports up to the module."""

from __future__ import annotations

import ast
from typing import Literal, NamedTuple

from migration.code.facts import children, dotted, parameters
from migration.code.module_names import ModuleNames, import_origins
from migration.code.structure import FunctionNode

Place = Literal["self", "class", "global", "imported", "builtin"]
#: How `type(self)` is spelled inside dotted names.
CLASS_OF_SELF = "<class>"
_NEW_SCOPE = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


class Meaning(NamedTuple):
    """`path` is relative to self or to the class for those two, the full dotted name otherwise."""

    place: Place
    path: str

    def then(self, rest: str) -> Meaning:
        return Meaning(self.place, f"{self.path}.{rest}" if self.path and rest else self.path or rest)


class Scope:
    """Names of one function: None for a plain local, else the dotted name that it may stand for.

    A name bound several times counts as the alias that any of its bindings makes it.
    """

    def __init__(self, owner: Owner, outer: Scope | None, bound: dict[str, str | None]) -> None:
        self.owner = owner
        self.outer = outer
        self.bound = bound
        self.imports: dict[str, str] = {}
        self.globals: set[str] = set()

    def inner(self, node: FunctionNode | ast.Lambda | ast.ClassDef) -> Scope:
        """The scope of a function, lambda or class that stands in this one."""
        arguments = [] if isinstance(node, ast.ClassDef) else parameters(node.args)
        scope = Scope(self.owner, self, dict.fromkeys(arguments))
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        scope._collect(body)
        return scope

    def _collect(self, body: list[ast.stmt] | list[ast.expr]) -> None:
        nonlocals: set[str] = set()
        stack: list[ast.AST] = list(body)
        bound = self.bound
        while stack:
            node = stack.pop()
            kind = type(node)
            if kind is ast.Name:
                if not isinstance(node.ctx, ast.Load):  # type: ignore[attr-defined]
                    bound.setdefault(node.id, None)  # type: ignore[attr-defined]
            elif isinstance(node, _NEW_SCOPE):
                if not isinstance(node, ast.Lambda):
                    bound.setdefault(node.name, None)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self.imports.update(import_origins(node))
            elif isinstance(node, ast.Global):
                self.globals.update(node.names)
            elif isinstance(node, ast.Nonlocal):
                nonlocals.update(node.names)
            else:
                if isinstance(node, ast.Assign):
                    alias = self.owner.dotted(node.value)
                    for target in node.targets:
                        if alias and isinstance(target, ast.Name) and alias.partition(".")[0] != target.id:
                            bound[target.id] = alias
                elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
                    if node.name:
                        bound.setdefault(node.name, None)
                elif isinstance(node, ast.MatchMapping) and node.rest:
                    bound.setdefault(node.rest, None)
                stack.extend(children(node))
        for name in (*self.globals, *nonlocals):
            bound.pop(name, None)

    def binds(self, name: str) -> bool:
        """Whether a name is local here or in an enclosing function of the method."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.globals:
                return False
            if name in scope.bound or name in scope.imports:
                return True
            scope = scope.outer
        return False

    def meaning(self, path: str) -> Meaning | None:
        """What a dotted name stands for, None for a plain local and for what nothing here shows."""
        root, _, rest = path.partition(".")
        scope: Scope | None = self
        for _ in range(10):
            while scope is not None and root not in scope.globals:
                if root in scope.imports:
                    return Meaning("imported", scope.imports[root]).then(rest)
                if root in scope.bound:
                    break
                scope = scope.outer
            if scope is None or root in scope.globals:
                return self.owner.outermost(root, rest)
            alias = scope.bound[root]
            if alias is None:
                # The first parameter of the method itself is bound in its outermost scope.
                outermost = scope.outer is None and root == self.owner.self_name
                return self.owner.outermost(root, rest) if outermost else None
            root, _, more = alias.partition(".")
            rest = ".".join(part for part in (more, rest) if part)
            if root == CLASS_OF_SELF:
                return Meaning("class", rest)
        return None


class Owner:
    """The method that the scopes belong to, its class and its module."""

    def __init__(
        self, module: ModuleNames, class_name: str, self_name: str | None, *, on_class: bool
    ) -> None:
        self.module = module
        self.class_name = class_name
        self.self_name = self_name
        self.on_class = on_class

    def scope(self, node: FunctionNode) -> Scope:
        """The scope of the method; its body is what `children` of it walks."""
        scope = Scope(self, None, dict.fromkeys(parameters(node.args)))
        scope._collect(node.body)
        return scope

    def dotted(self, node: ast.expr) -> str:
        """A chain of names, where `type(self)` counts as a name; "" for anything else."""
        if isinstance(node, ast.Attribute):
            inner = self.dotted(node.value)
            return f"{inner}.{node.attr}" if inner else ""
        if isinstance(node, ast.Call):
            is_type = dotted(node.func) == "type" and len(node.args) == 1 and not self.on_class
            return CLASS_OF_SELF if is_type and dotted(node.args[0]) == self.self_name else ""
        return node.id if isinstance(node, ast.Name) else ""

    def outermost(self, root: str, rest: str) -> Meaning | None:
        """What a name means that no local binding hides."""
        module = self.module
        if root == CLASS_OF_SELF:
            return Meaning("class", rest)
        if root == self.self_name:
            if self.on_class:
                return Meaning("class", rest)
            if rest == "__class__" or rest.startswith("__class__."):
                return Meaning("class", rest[10:])
            return Meaning("self", rest)
        if root == self.class_name:
            return Meaning("class", rest)
        if root in module.own:
            place: Place = "class" if root in module.classes else "global"
            return Meaning(place, root).then(rest)
        if root in module.origins:
            return Meaning("imported", module.origins[root]).then(rest)
        return Meaning("builtin", root).then(rest)
