"""What running a method twice would do: the declaration that the gate is given for each method."""

from __future__ import annotations

import ast

from migration.code.facts import SelfUse
from migration.move.moving import Moving, yields
from migration.recipe import Recipe

_WRITES = frozenset(("write", "augment", "delete", "setattr", "delattr", "dynamic"))
# Calls of these change nothing; any other call may.
_HARMLESS = frozenset(
    (
        "abs",
        "all",
        "any",
        "bool",
        "dict",
        "divmod",
        "enumerate",
        "filter",
        "float",
        "frozenset",
        "getattr",
        "hasattr",
        "int",
        "isinstance",
        "len",
        "list",
        "map",
        "max",
        "min",
        "range",
        "repr",
        "reversed",
        "round",
        "set",
        "sorted",
        "str",
        "sum",
        "tuple",
        "type",
        "zip",
    )
)
_READING_METHODS = frozenset(("get", "items", "keys", "values", "startswith", "endswith", "index", "count"))


def effect_of(one: Moving, recipe: Recipe) -> tuple[str, str]:
    """(constructor of `shadow.experiment`, its arguments as source text)."""
    declared = dict(recipe.effects).get(one.label, "")
    if declared.startswith("skip: "):
        return "Skip", repr(declared.removeprefix("skip: "))
    if declared:
        return declared.capitalize(), ""
    if yields(one.node) or one.is_managed:
        return "Skip", '"its body runs while the caller works"'
    return ("Pure" if is_pure(one) else "Isolated"), ""


def is_pure(one: Moving) -> bool:
    """True where the body only reads: no write of any attribute or element, no call that could write."""
    if any(_writes(use) for use in one.facts.uses):
        return False
    for node in ast.walk(one.node):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            return False
        if isinstance(node, ast.Await | ast.Global | ast.Nonlocal | ast.Import | ast.ImportFrom):
            return False
        if isinstance(node, ast.Call) and not _harmless(node.func):
            return False
    return True


def _writes(use: SelfUse) -> bool:
    return use.kind in _WRITES or use.kind == "escape"


def _harmless(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in _HARMLESS
    return isinstance(function, ast.Attribute) and function.attr in _READING_METHODS
