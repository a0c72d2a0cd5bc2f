"""Classes that share their instances with a class: its bases, what is derived from it, and their bases.

By names, over all files: too many kin only make a check stricter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from migration.code.tree import Tree

_CLASS = re.compile(rb"^[ \t]*class[ \t]+(\w+)[ \t]*\(([^)]*)\)[ \t]*:", re.MULTILINE)
_NAME = re.compile(rb"[\w.]+")


@dataclass(frozen=True)
class Kin:
    """`above` are the bases of the class itself, `all` everything that may have its instances."""

    above: frozenset[str]
    all: frozenset[str]


def kin_of(tree: Tree, name: str) -> Kin:
    """The kin of a class, itself included in `all`."""
    bases: dict[str, set[str]] = {}
    for class_name, above in _classes(tree):
        bases.setdefault(class_name, set()).update(above)
    below = _closure({name}, lambda known: {c for c, above in bases.items() if above & known})
    upward = _closure(below, lambda known: {b for c in known for b in bases.get(c, ())})
    own = _closure({name}, lambda known: {b for c in known for b in bases.get(c, ())}) - {name}
    return Kin(frozenset(own), frozenset(upward))


def _classes(tree: Tree) -> Iterator[tuple[str, set[str]]]:
    for path in tree.python_files():
        for match in _CLASS.finditer(tree.read(path) or b""):
            names = {found.rpartition(b".")[2].decode() for found in _NAME.findall(match[2])}
            yield match[1].decode(), names


def _closure(start: set[str], more: Callable[[set[str]], set[str]]) -> set[str]:
    found = set(start)
    while not (new := more(found)) <= found:
        found |= new
    return found
