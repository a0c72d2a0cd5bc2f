"""The walk over one method that collects its effects."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

from migration.code.facts import children, dotted
from migration.code.module_names import ModuleNames, import_origins
from migration.code.structure import FunctionNode
from migration.survey.effects.reads import Reads
from migration.survey.effects.recorder import literal
from migration.survey.effects.scopes import Owner, Scope
from migration.survey.effects.values import (
    Effects,
    EnvironmentUse,
    Holder,
    How,
    LocalImport,
)

_REFLECTION = frozenset(("hasattr", "getattr", "setattr", "delattr"))
_HOLDERS: dict[str, Holder] = {"class": "class", "global": "global", "imported": "imported", "self": "object"}


def method_effects(
    node: FunctionNode, module: ModuleNames, class_name: str, self_name: str | None, *, on_class: bool
) -> Effects:
    """Effects of one method. `on_class`: its first parameter is the class, not an instance.

    Names are followed through imports and aliases (`import os as _os`, `Attn = AttnWrapperBase`,
    `klass = type(self)`), at module level and inside the method.
    """
    owner = Owner(module, class_name, self_name, on_class=on_class)
    walker = _Walker(owner, owner.scope(node))
    walker.block(node.body)
    return walker.found


def environment_at_import(body: list[ast.stmt], module: ModuleNames, class_name: str) -> list[EnvironmentUse]:
    """The environment as module-level or class-level code uses it; functions and classes are not entered."""
    owner = Owner(module, class_name, None, on_class=False)
    walker = _Walker(owner, Scope(owner, None, {}))
    code = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    walker.block(statement for statement in body if not isinstance(statement, code))
    return walker.found.environment


class _Walker(Reads):
    def __init__(self, owner: Owner, scope: Scope) -> None:
        super().__init__(owner, scope)
        self.guards = 0
        self.returns = 0

    # Statements: which of them run on every call

    def block(self, body: Iterable[ast.stmt]) -> None:
        """Statements in order; what follows a possible return does not run on every call."""
        deeper = 0
        for statement in body:
            before = self.returns
            self.visit(statement)
            if self.returns > before:
                deeper += 1
                self.conditional += 1
        self.conditional -= deeper

    def visit(self, node: ast.AST) -> None:
        method = _DISPATCH.get(type(node))
        if method is not None:
            method(self, node)
        else:
            for child in children(node):
                self.visit(child)

    def _branch(self, body: Iterable[ast.stmt]) -> None:
        self.conditional += 1
        self.block(body)
        self.conditional -= 1

    def _maybe(self, nodes: Iterable[ast.AST]) -> None:
        self.conditional += 1
        self._all(nodes)
        self.conditional -= 1

    def _return(self, node: ast.Return) -> None:
        self.returns += 1
        self._all((node.value,))

    def _if(self, node: ast.If | ast.While) -> None:
        self.visit(node.test)
        self._branch(node.body)
        self._branch(node.orelse)

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        self._store(node.target, "set")
        self.visit(node.iter)
        self._branch(node.body)
        self._branch(node.orelse)

    def _try(self, node: ast.Try) -> None:
        guarded = any(_catches_import_error(handler) for handler in node.handlers)
        self.guards += guarded
        self.block(node.body)
        self.guards -= guarded
        for handler in node.handlers:
            self._all((handler.type,))
            self._branch(handler.body)
        self._branch(node.orelse)
        self.block(node.finalbody)

    def _match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        for case in node.cases:
            self._all((case.pattern, case.guard))
            self._branch(case.body)

    def _yield(self, node: ast.Yield | ast.YieldFrom) -> None:
        self.found.yields = self.found.yields or self.scope.outer is None
        self._all((node.value,))

    def _bool_op(self, node: ast.BoolOp) -> None:
        self.visit(node.values[0])
        self._maybe(node.values[1:])

    def _if_expression(self, node: ast.IfExp) -> None:
        self.visit(node.test)
        self._maybe((node.body, node.orelse))

    def _comprehension(self, node: ast.expr) -> None:
        self._maybe(children(node))

    def _function(self, node: FunctionNode | ast.Lambda) -> None:
        self._all(getattr(node, "decorator_list", ()))
        self._all((*node.args.defaults, *node.args.kw_defaults))
        self._inside(node, (node.body,) if isinstance(node, ast.Lambda) else node.body)

    def _class(self, node: ast.ClassDef) -> None:
        self._all((*node.decorator_list, *node.bases, *node.keywords))
        self._inside(node, node.body)

    def _inside(self, node: FunctionNode | ast.Lambda | ast.ClassDef, body: Iterable[ast.AST]) -> None:
        outer, returns = self.scope, self.returns
        self.scope = outer.inner(node)
        self._maybe(body)
        self.scope, self.returns = outer, returns

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for name, origin in import_origins(node).items():
            self.found.local_imports.append(LocalImport(origin, name, node.lineno, self.guards > 0))

    # Writes

    def _assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._store(target, "set")

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._store(node.target, "set")
        elif isinstance(node.target, ast.Attribute):
            holder = node.target.value
            self.found.bare_annotations.add((holder.lineno, holder.col_offset))

    def _augmented(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        self._store(node.target, "augment")

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self._store(target, "delete")

    def _with_item(self, node: ast.withitem) -> None:
        self.visit(node.context_expr)
        if node.optional_vars is not None:
            self._store(node.optional_vars, "set")

    def _store(self, target: ast.expr, how: How) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._store(part, how)
        elif isinstance(target, ast.Starred):
            self._store(target.value, how)
        elif isinstance(target, ast.Name):
            if target.id in self.scope.globals:
                self._state("global", "", target.id, how, target.lineno)
        elif isinstance(target, ast.Attribute):
            meaning = self._meaning(target.value)
            if meaning is not None and (meaning.place, meaning.path) != ("self", ""):
                self._place(meaning, target.attr, how, target.lineno)
            elif meaning is not None and target.attr == "__class__":
                self._state("object", "self", "__class__", how, target.lineno)
            self.visit(target.value)
        elif isinstance(target, ast.Subscript):
            self._changed(target.value, "item", literal(target.slice), target.lineno)
            self._all((target.value, target.slice) if how == "augment" else (target.slice,))


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = {dotted(node) for node in ast.walk(handler.type)}
    return bool(names & {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def _nothing(walker: _Walker, node: ast.AST) -> None:
    pass


_DISPATCH: dict[type[ast.AST], Callable[[_Walker, Any], None]] = {
    ast.AnnAssign: _Walker._annotated,
    ast.Assign: _Walker._assign,
    ast.AsyncFor: _Walker._for,
    ast.AsyncFunctionDef: _Walker._function,
    ast.Attribute: _Walker._attribute,
    ast.AugAssign: _Walker._augmented,
    ast.BoolOp: _Walker._bool_op,
    ast.Call: _Walker._call,
    ast.ClassDef: _Walker._class,
    ast.Compare: _Walker._compare,
    ast.Constant: _nothing,
    ast.Delete: _Walker._delete,
    ast.DictComp: _Walker._comprehension,
    ast.For: _Walker._for,
    ast.FunctionDef: _Walker._function,
    ast.GeneratorExp: _Walker._comprehension,
    ast.If: _Walker._if,
    ast.IfExp: _Walker._if_expression,
    ast.Import: _Walker._import,
    ast.ImportFrom: _Walker._import,
    ast.Lambda: _Walker._function,
    ast.ListComp: _Walker._comprehension,
    ast.Match: _Walker._match,
    ast.Name: _Walker._name,
    ast.Return: _Walker._return,
    ast.SetComp: _Walker._comprehension,
    ast.Subscript: _Walker._subscript,
    ast.Try: _Walker._try,
    ast.TryStar: _Walker._try,
    ast.While: _Walker._if,
    ast.Yield: _Walker._yield,
    ast.YieldFrom: _Walker._yield,
    ast.withitem: _Walker._with_item,
}
