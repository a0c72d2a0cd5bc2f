"""Where a test stands: under a `not`, before a use of the attribute, in a closure."""

from __future__ import annotations

import ast
from typing import Literal

from migration.code.facts import dotted
from migration.presence.values import Test


def context(test: Test, parents: dict[int, ast.AST]) -> Literal["plain", "not", "and"]:
    parent = parents.get(id(test.node))
    if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
        return "not"
    if isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And):
        after = parent.values[parent.values.index(test.node) + 1 :]
        uses = (node for part in after for node in ast.walk(part))
        if any(isinstance(node, ast.Attribute) and node.attr == test.attribute for node in uses):
            return "and"
    return "plain"


#: Where a comparison may stand as it is.
_ROOMY = (
    ast.AnnAssign
    | ast.Assert
    | ast.Assign
    | ast.BoolOp
    | ast.Call
    | ast.Expr
    | ast.If
    | ast.IfExp
    | ast.Lambda
    | ast.List
    | ast.NamedExpr
    | ast.Return
    | ast.Set
    | ast.Tuple
    | ast.While
    | ast.comprehension
    | ast.keyword
)


def is_operand(call: ast.Call, parents: dict[int, ast.AST]) -> bool:
    """Whether a comparison in the place of the call needs parentheses."""
    parent = parents.get(id(call))
    negated = isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
    return not (negated or isinstance(parent, _ROOMY))


def holds_self(test: Test, parents: dict[int, ast.AST]) -> bool:
    """Whether nothing but such tests makes the innermost nested function or lambda a closure over self."""
    owner = parents.get(id(test.node))
    while owner is not None and not isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        owner = parents.get(id(owner))
    if owner is None or id(owner) not in parents:
        return False
    name = ast.unparse(test.node.args[0])
    asked = {
        id(node.args[0])
        for node in ast.walk(owner)
        if isinstance(node, ast.Call) and dotted(node.func) in ("hasattr", "getattr") and node.args
    }
    return not any(
        isinstance(node, ast.Name) and node.id == name and id(node) not in asked for node in ast.walk(owner)
    )
