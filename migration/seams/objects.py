"""What a cluster does with the objects in attributes of self."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from migration.code.facts import self_name
from migration.seams.graph import ClassGraph


@dataclass(frozen=True)
class ObjectUse:
    """`members` are looked up on the object, each as often as its count says; `bare` is True where the
    object itself is used: passed on, called, compared, bound anew."""

    members: Mapping[str, int]
    bare: bool


def object_uses(graph: ClassGraph, names: Iterable[str]) -> dict[str, ObjectUse]:
    """How the named methods use each attribute of self that they spell out."""
    members: dict[str, dict[str, int]] = {}
    bare: set[str] = set()
    for name in names:
        for method in graph.nodes[name].methods:
            for attribute, member in _looked_up(method.node, self_name(method.node)):
                if member is None:
                    bare.add(attribute)
                found = members.setdefault(attribute, {})
                if member is not None:
                    found[member] = found.get(member, 0) + 1
    return {name: ObjectUse(found, name in bare) for name, found in sorted(members.items())}


def _looked_up(node: ast.AST, own: str | None) -> Iterator[tuple[str, str | None]]:
    """(attribute, member) for `self.attribute.member`, (attribute, None) for any other `self.attribute`."""
    stack: list[ast.AST] = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, ast.Attribute):
            inner = part.value
            if isinstance(inner, ast.Attribute) and _is_own(inner, own) and inner.lineno == inner.end_lineno:
                yield inner.attr, part.attr
                continue
            if _is_own(part, own):
                yield part.attr, None
                continue
        stack += ast.iter_child_nodes(part)


def _is_own(node: ast.Attribute, own: str | None) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == own
