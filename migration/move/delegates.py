"""Stubs that a slice has left in a class: they have moved already."""

from __future__ import annotations

import ast

from migration.code.structure import Method


def is_delegate(method: Method) -> bool:
    """True where the body is one statement, a docstring apart, that asks a handler made for self."""
    return bool(handler_asked(method))


def handler_asked(method: Method) -> str:
    """The class of the handler that a delegate asks, "" for what is no delegate."""
    body = method.node.body
    documented = len(body) == 2 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    if len(body) > 1 and not documented:
        return ""
    statement = body[-1]
    if isinstance(statement, ast.Return):
        asked = statement.value
    elif isinstance(statement, ast.With | ast.AsyncWith):
        asked = statement.items[0].context_expr
    else:
        return ""
    if isinstance(asked, ast.Await | ast.YieldFrom):
        asked = asked.value
    if (
        isinstance(asked, ast.Call)
        and isinstance(asked.func, ast.Attribute)
        and isinstance(made := asked.func.value, ast.Call)
        and isinstance(made.func, ast.Attribute)
        and made.func.attr == "for_worker"
    ):
        return ast.unparse(made.func.value)
    return ""
