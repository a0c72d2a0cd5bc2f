"""What other slices of a class have in it: gates with their legacy bodies, and delegates."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from migration.code.structure import ClassOutline, Method
from migration.move.delegates import handler_asked
from migration.move.moving import moved_name
from migration.recipe import Recipe

LEGACY = "_legacy_"


def switches(shape: ClassOutline) -> dict[str, str]:
    """Name of the gate object by the name in the handler of each gated method, over all slices of the class."""
    names = {m.name for m in shape.methods}
    found = {moved_name(m, shape.name): _asked_first(m) for m in shape.methods}
    return {name: gate for name, gate in found.items() if gate and LEGACY + name in names}


def _asked_first(method: Method) -> str:
    """`X` where the body begins with `if X.on:`, a docstring apart."""
    for node in method.node.body[:2]:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Attribute) and node.test.attr == "on":
            return ast.unparse(node.test.value)
    return ""


def own_methods(shape: ClassOutline, methods: Iterable[Method], recipe: Recipe) -> tuple[Method, ...]:
    """Those of `methods` that are the slice's own: no legacy body, and no gate or delegate of another slice."""
    gates, handler = switches(shape), recipe.served[1]
    legacy = {LEGACY + name for name in gates}
    return tuple(
        m
        for m in methods
        if m.name not in legacy
        and gates.get(moved_name(m, shape.name), recipe.gate_name) == recipe.gate_name
        and (handler_asked(m) or handler) == handler
    )
