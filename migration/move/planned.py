"""The bodies that a recipe was planned on: whether the methods are still those that somebody looked at."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Sequence

from migration.code.facts import accessor_of
from migration.code.structure import FunctionNode, Method
from migration.errors import Refusal
from migration.recipe import Recipe


def body_hash(node: FunctionNode) -> str:
    """SHA-256 of a definition as a tree: layout and comments do not count, nor does the Python that reads it."""
    parts: list[str] = []
    _canonical(node, parts)
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def _canonical(value: object, parts: list[str]) -> None:
    """The tree in prefix form, without what differs between versions of Python: fields that are empty (newer
    versions have more of them) and empty strings between the parts of an f-string."""
    if isinstance(value, ast.AST):
        parts.append(f"{type(value).__name__}(")
        for name, field in ast.iter_fields(value):
            if isinstance(value, ast.JoinedStr):
                field = [part for part in value.values if not _is_empty(part)]
            if (field is not None and field != []) or (isinstance(value, ast.Constant) and name == "value"):
                parts.append(f"{name}=")
                _canonical(field, parts)
        parts.append(")")
    elif isinstance(value, list):
        parts.append("[")
        for item in value:
            _canonical(item, parts)
            parts.append(",")
        parts.append("]")
    else:
        parts.append(repr(value))


def _is_empty(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and part.value == ""


def planned_key(method: Method) -> str:
    """How `[planned.bodies]` calls a definition: its name, or `name.setter` for an accessor of a property."""
    accessor = accessor_of(method)
    return f"{method.name}.{accessor}" if accessor else method.name


def planned_bodies(chosen: Sequence[Method]) -> dict[str, str]:
    """What `[planned.bodies]` says about methods that a recipe moves."""
    return {planned_key(method): body_hash(method.node) for method in chosen}


def changed_since(recipe: Recipe, chosen: Sequence[Method]) -> tuple[Refusal, ...]:
    """MG109 for each method that is not the one that the recipe was planned on.

    Where a banner chooses the methods, one that came under it later or left it is such a method too.
    A recipe without `[planned]` asks for nothing.
    """
    if not recipe.planned:
        return ()
    there = {planned_key(method): method for method in chosen}
    found: list[Refusal] = []
    for key, method in there.items():
        if key not in recipe.planned:
            if recipe.section:
                message = "it came under the banner since the recipe was planned"
                found.append(Refusal("MG109", method.name, method.first_line, message))
        elif body_hash(method.node) != recipe.planned[key]:
            message = "the body changed since the recipe was planned"
            found.append(Refusal("MG109", method.name, method.first_line, message))
    for key in recipe.planned:
        name = key.partition(".")[0]
        if key not in there and name not in recipe.stays and (recipe.section or name in recipe.methods):
            found.append(Refusal("MG109", name, 0, f"{key} is no longer there as it was planned"))
    return tuple(found)
