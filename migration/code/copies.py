"""Copies of trees."""

from __future__ import annotations

import ast
from typing import TypeVar

_Node = TypeVar("_Node", bound=ast.AST)


def copy_tree(node: _Node) -> _Node:
    """A copy of fields and positions. Whatever else hangs on a node (a checker links it to its parent, and so
    to the whole module) is left behind."""
    twin = type(node)()
    for name in node._fields:
        if hasattr(node, name):
            setattr(twin, name, _copy(getattr(node, name)))
    for name in node._attributes:
        if hasattr(node, name):
            setattr(twin, name, getattr(node, name))
    return twin


def _copy(value: object) -> object:
    if isinstance(value, ast.AST):
        return copy_tree(value)
    return [_copy(item) for item in value] if isinstance(value, list) else value
