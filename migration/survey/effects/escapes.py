"""How self and its bound methods get out of a method: as arguments, in containers, closures, results."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from migration.code.facts import children, dotted, parameters
from migration.code.structure import FunctionNode

#: What these do with their first argument is no escape.
_LOOK_ONLY = frozenset(("hasattr", "getattr", "setattr", "delattr", "type", "isinstance", "id", "super"))
_NESTED = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


@dataclass(frozen=True)
class Escape:
    """`what` is `self`, or the method that is passed on without being called."""

    what: str
    how: str
    line: int


def self_aliases(node: FunctionNode, self_name: str | None) -> tuple[str, ...]:
    """Names that are bound to bare self somewhere in the method: `worker = self`."""
    if self_name is None:
        return ()
    found: list[str] = []
    for part in ast.walk(node):
        value = getattr(part, "value", None)
        if isinstance(value, ast.Name) and value.id == self_name:
            if isinstance(part, ast.Assign):
                found += [target.id for target in part.targets if isinstance(target, ast.Name)]
            elif isinstance(part, ast.AnnAssign | ast.NamedExpr) and isinstance(part.target, ast.Name):
                found.append(part.target.id)
    return tuple(dict.fromkeys(found))


def escapes(node: FunctionNode, names: frozenset[str], methods: frozenset[str]) -> tuple[Escape, ...]:
    """Every way out of bare self (any of `names`) and of `self.m` for m in `methods`, in source order."""
    return tuple(sorted(_walk(node, names, methods), key=lambda escape: (escape.line, escape.what)))


def _walk(node: FunctionNode, names: frozenset[str], methods: frozenset[str]) -> Iterator[Escape]:
    stack: list[tuple[ast.AST, str, frozenset[str]]] = [(part, "", names) for part in node.body]
    while stack:
        current, how, visible = stack.pop()
        if isinstance(current, ast.Attribute) and isinstance(current.value, ast.Name):
            if current.value.id in visible:
                if current.attr in methods and isinstance(current.ctx, ast.Load):
                    yield Escape(current.attr, how or "evaluated", current.lineno)
                continue
        if isinstance(current, ast.Name):
            if current.id in visible and isinstance(current.ctx, ast.Load):
                yield Escape("self", how or "evaluated", current.lineno)
            continue
        inside = visible
        if isinstance(current, _NESTED) and not isinstance(current, ast.ClassDef):
            inside = visible - frozenset(parameters(current.args))
        stack.extend((child, way, inside) for child, way in _ways(current, how, visible))


def _ways(node: ast.AST, how: str, names: frozenset[str]) -> Iterator[tuple[ast.AST, str]]:
    """The children of a node, each with what becomes of its value."""
    if isinstance(node, ast.Call):
        function = dotted(node.func)
        on_self = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", None) in names
        if not on_self:
            yield node.func, "called"
        if function == "super":
            return
        called = function or f"{getattr(node.func, 'attr', 'a call')}()"
        arguments: list[ast.AST] = list(node.args)
        if function in _LOOK_ONLY and _is_self(node, names):
            arguments = arguments[1:]
        for argument in arguments:
            yield argument, f"argument of {called}"
        for keyword in node.keywords:
            yield keyword.value, f"argument of {called}"
    elif isinstance(node, ast.Assign):
        yield node.value, "stored in " + ", ".join(_target(target) for target in node.targets)
        for target in node.targets:
            yield target, "written to"
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
        if node.value is not None:
            yield node.value, f"stored in {_target(node.target)}"
        yield node.target, "written to"
    elif isinstance(node, ast.Return):
        if node.value is not None:
            yield node.value, "returned"
    elif isinstance(node, ast.Yield | ast.YieldFrom):
        if node.value is not None:
            yield node.value, "yielded"
    elif isinstance(node, ast.arguments):
        for default in (*node.defaults, *node.kw_defaults):
            if default is not None:
                yield default, "a default"
    elif isinstance(node, ast.Lambda):
        yield node.args, ""
        yield node.body, "result of a lambda"
    elif isinstance(node, ast.Compare):
        yield from ((child, "compared") for child in children(node))
    elif isinstance(node, ast.FormattedValue):
        yield from ((child, "formatted") for child in children(node))
    elif isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict | ast.Starred | ast.IfExp | ast.BoolOp):
        yield from ((child, how or "in a container") for child in children(node))
    else:
        yield from ((child, "") for child in children(node))


def _is_self(node: ast.Call, names: frozenset[str]) -> bool:
    return bool(node.args) and isinstance(node.args[0], ast.Name) and node.args[0].id in names


def _target(node: ast.expr) -> str:
    if isinstance(node, ast.Tuple | ast.List):
        return ", ".join(_target(part) for part in node.elts)
    if isinstance(node, ast.Subscript):
        return f"{dotted(node.value) or 'a container'}[...]"
    return dotted(node) or "a container"
