"""The classes whose code runs on the same self: bases, subclasses, and what subclasses mix in."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from migration.survey.presence.class_files import ClassFiles, KnownClass, Module

#: Bases that bring no attribute a class could miss, and no hook.
_TRIVIAL = frozenset(
    (
        "object",
        "abc.ABC",
        "typing.Generic",
        "typing.Protocol",
        "typing_extensions.Protocol",
    )
)
_HEADER = re.compile(rb"^[ \t]*class[ \t]+(\w+)[ \t]*\(([^)]*)\)", re.MULTILINE)
_WORD = re.compile(rb"\w+")
_RENAMED = re.compile(rb"\b(\w+)[ \t]+as[ \t]+(\w+)")


class Hierarchy:
    """One class with its kin. Bases are followed through imports when it is made, subclasses when asked for."""

    def __init__(self, files: ClassFiles, module: Module, node: ast.ClassDef) -> None:
        self.files = files
        self.owner = files.known(module, node)
        #: `order` is the method resolution order as far as it is known, the class itself first.
        self.order, self.unknown_bases = _order(files, self.owner)

    @cached_property
    def subclasses(self) -> tuple[KnownClass, ...]:
        """Searched in every file of the tree. None where a base is unknown: nothing is claimed then."""
        return () if self.unknown_bases else _subclasses(self.files, self.owner)

    @cached_property
    def _mixins(self) -> tuple[tuple[KnownClass, ...], tuple[str, ...]]:
        inside = {id(known) for known in (*self.order, *self.subclasses)}
        mixed: dict[int, KnownClass] = {}
        unknown: list[str] = []
        for subclass in self.subclasses:
            theirs, missing = _order(self.files, subclass)
            mixed.update({id(known): known for known in theirs if id(known) not in inside})
            unknown += [name for name in missing if name not in self.unknown_bases]
        return tuple(mixed.values()), tuple(dict.fromkeys(unknown))

    @property
    def mixed_in(self) -> tuple[KnownClass, ...]:
        """What subclasses derive from besides: their methods run on the same self."""
        return self._mixins[0]

    @property
    def unknown_mixins(self) -> tuple[str, ...]:
        """The same, where the source is not in the tree."""
        return self._mixins[1]

    @cached_property
    def outside(self) -> tuple[KnownClass, ...]:
        """Classes whose methods may run on self and that the class does not know of."""
        return (*self.subclasses, *self.mixed_in)

    @property
    def all(self) -> tuple[KnownClass, ...]:
        return (*self.order, *self.outside)

    def next_after(self, owner: KnownClass, name: str) -> KnownClass | None:
        """The class where `super().name` of `owner` finds its method; None where that is not certain."""
        if self.unknown_bases or owner not in self.order or self.mixed_in or self.unknown_mixins:
            return None
        for known in self.order[self.order.index(owner) + 1 :]:
            if name in known.body.bindings:
                return known
        return None


def _order(files: ClassFiles, owner: KnownClass) -> tuple[tuple[KnownClass, ...], tuple[str, ...]]:
    """Linearised known ancestors. With several bases the order is C3's, depth first where that fails."""
    unknown: list[str] = []

    def linear(known: KnownClass, path: tuple[KnownClass, ...]) -> list[KnownClass]:
        if known in path:
            return []
        parts: list[list[KnownClass]] = []
        direct: list[KnownClass] = []
        for base in known.node.bases:
            found = files.resolve(known.module, base)
            if isinstance(found, KnownClass):
                direct.append(found)
                parts.append(linear(found, (*path, known)))
            elif found not in _TRIVIAL:
                unknown.append(found)
        return [known, *_merge([*parts, direct])]

    return tuple(linear(owner, ())), tuple(dict.fromkeys(unknown))


def _merge(sequences: list[list[KnownClass]]) -> list[KnownClass]:
    merged: list[KnownClass] = []
    rest = [list(sequence) for sequence in sequences if sequence]
    while rest:
        head = next(
            (s[0] for s in rest if not any(s[0] in other[1:] for other in rest)),
            rest[0][0],
        )
        merged.append(head)
        rest = [[known for known in sequence if known is not head] for sequence in rest]
        rest = [sequence for sequence in rest if sequence]
    return merged


def _subclasses(files: ClassFiles, owner: KnownClass) -> tuple[KnownClass, ...]:
    headers = _headers(files, owner.name)
    found: dict[int, KnownClass] = {}
    waiting = [owner]
    while waiting:
        base = waiting.pop()
        for path in headers.get(base.name, ()):
            module = files.module(path)
            if module is None:
                continue
            for node in _class_nodes(module):
                known = files.known(module, node)
                if known is not owner and id(known) not in found and _derives(files, known, base):
                    found[id(known)] = known
                    waiting.append(known)
    return tuple(found.values())


def _headers(files: ClassFiles, name: str) -> dict[str, list[str]]:
    """Base name -> files with a class statement that names it; `as` renames of the class count too."""
    found: dict[str, set[str]] = defaultdict(set)
    word = name.encode()
    for path, data in files.texts.items():
        for match in _HEADER.finditer(data):
            for base in _WORD.findall(match[2]):
                found[base.decode("utf-8", "replace")].add(path)
        if word in data:
            for original, renamed in _RENAMED.findall(data):
                if original == word and renamed.decode("utf-8", "replace") in found:
                    found[name].add(path)
    return {base: sorted(paths) for base, paths in found.items()}


def _class_nodes(module: Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef))


def _derives(files: ClassFiles, known: KnownClass, base: KnownClass) -> bool:
    """Whether a base of `known` is `base`, or may be: a name that leads nowhere else counts."""
    for expression in known.node.bases:
        found = files.resolve(known.module, expression)
        if found is base:
            return True
        if isinstance(found, str) and found.rpartition(".")[2].rpartition(":")[2] == base.name:
            return True
    return False
