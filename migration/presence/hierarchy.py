"""The classes whose code runs on the same self: bases, subclasses, and what subclasses mix in."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from migration.presence.class_files import ClassFiles, KnownClass, Module

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
#: More subclasses than these take too long to look at.
MOST_SUBCLASSES = 500
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
    def _headers(self) -> Headers:
        return _headers(self.files, self.owner.name)

    @cached_property
    def too_many(self) -> int:
        """How many subclasses there may be by name, where that is more than can be looked at; else 0."""
        reached = self._headers.below(self.owner.name)
        return len(reached) if len(reached) > MOST_SUBCLASSES else 0

    @cached_property
    def subclasses(self) -> tuple[KnownClass, ...]:
        """Searched in every file of the tree; none where there are too many."""
        return () if self.too_many else _subclasses(self.files, self.owner, self._headers)

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


def _subclasses(files: ClassFiles, owner: KnownClass, headers: Headers) -> tuple[KnownClass, ...]:
    found: dict[int, KnownClass] = {}
    waiting = [owner]
    while waiting:
        base = waiting.pop()
        for path in sorted({path for path, _ in headers.derived.get(base.name, ())}):
            module = files.module(path)
            if module is None:
                continue
            for node in _class_nodes(module):
                known = files.known(module, node)
                if known is not owner and id(known) not in found and _derives(files, known, base):
                    found[id(known)] = known
                    waiting.append(known)
    return tuple(found.values())


@dataclass(frozen=True)
class Headers:
    """Base name -> (file, class) for each class statement of the tree that names it."""

    derived: dict[str, set[tuple[str, str]]]

    def below(self, name: str) -> set[tuple[str, str]]:
        """All classes that may derive from `name`, as far as names tell."""
        reached: set[tuple[str, str]] = set()
        waiting = [name]
        while waiting:
            fresh = self.derived.get(waiting.pop(), set()) - reached
            reached |= fresh
            waiting += {derived for _, derived in fresh}
        return reached


def _headers(files: ClassFiles, name: str) -> Headers:
    """Found in the text; `import W as V` makes V count as W for the class `name`."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    word = name.encode()
    for path, data in files.texts.items():
        renamed = {new for old, new in _RENAMED.findall(data) if old == word} if word in data else ()
        for match in _HEADER.finditer(data):
            for base in _WORD.findall(match[2]):
                entry = (path, match[1].decode("utf-8", "replace"))
                found[base.decode("utf-8", "replace")].add(entry)
                if base in renamed:
                    found[name].add(entry)
    return Headers(dict(found))


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
