"""Types of an instance's attributes over time, at a cost that does not grow with what stays the same.

Two looks at an instance whose attributes have the same classes differ in nothing that is recorded, so
only the looks are counted; an attribute's own count is brought up to date when its type changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .naming import CONTAINERS, type_name

#: Instances that are told apart at a time.
_INSTANCES = 64


@dataclass
class _Stretch:
    """Looks at one instance: its attributes now, and since which look each has the type that it has."""

    names: tuple[str, ...] = ()
    kinds: tuple[type, ...] = ()
    types: list[str] = field(default_factory=list)
    since: list[int] = field(default_factory=list)
    containers: dict[int, tuple[int, int]] = field(default_factory=dict)
    looks: int = 0


class States:
    """`add(attribute, type, looks)` is called with what is new; with 0 looks when a type is seen first."""

    def __init__(self, add: Callable[[str, str, int], None], depth: int) -> None:
        self._add = add
        self._depth = depth
        self._stretches: dict[int, _Stretch] = {}

    def look(self, instance: Any) -> None:
        """Take note of the attributes of an instance as they are now."""
        stretch = self._stretches.get(id(instance))
        if stretch is None:
            if len(self._stretches) >= _INSTANCES:
                self.settle()
                self._stretches.clear()
            stretch = self._stretches[id(instance)] = _Stretch()
        names, values = attributes(instance)
        kinds = tuple(map(type, values))
        if kinds != stretch.kinds or names != stretch.names:
            self._begin(stretch, names, kinds, values)
        else:
            for index, mark in stretch.containers.items():
                value = values[index]
                if mark != (id(value), len(value)):
                    self._renew(stretch, index, value)
        stretch.looks += 1
        if not stretch.looks & (stretch.looks - 1):
            self._settle(stretch)
            # What is changed in place without changing its length is noticed at these looks.
            stretch.containers = dict.fromkeys(stretch.containers, (0, 0))

    def settle(self) -> None:
        """Bring the counts of all attributes up to date."""
        for stretch in self._stretches.values():
            self._settle(stretch)

    def _begin(
        self, stretch: _Stretch, names: tuple[str, ...], kinds: tuple[type, ...], values: tuple[Any, ...]
    ) -> None:
        self._settle(stretch)
        stretch.names, stretch.kinds = names, kinds
        stretch.types = [type_name(value, self._depth) for value in values]
        stretch.since = [stretch.looks] * len(names)
        stretch.containers = {
            index: (id(value), len(value)) for index, value in enumerate(values) if kinds[index] in CONTAINERS
        }
        for name, text in zip(names, stretch.types, strict=True):
            self._add(name, text, 0)

    def _renew(self, stretch: _Stretch, index: int, value: Any) -> None:
        stretch.containers[index] = (id(value), len(value))
        text = type_name(value, self._depth)
        if text != stretch.types[index]:
            self._count(stretch, index)
            stretch.types[index] = text
            self._add(stretch.names[index], text, 0)

    def _settle(self, stretch: _Stretch) -> None:
        for index in range(len(stretch.names)):
            self._count(stretch, index)

    def _count(self, stretch: _Stretch, index: int) -> None:
        looks = stretch.looks - stretch.since[index]
        if looks:
            self._add(stretch.names[index], stretch.types[index], looks)
            stretch.since[index] = stretch.looks


def attributes(instance: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Names and values of the instance's own attributes and filled slots; runs none of its code."""
    try:
        own: Any = object.__getattribute__(instance, "__dict__")
    except AttributeError:  # slots only
        own = {}
    own = own.copy() if type(own) is dict else {}  # another thread may add to the original meanwhile
    for kind in type.__dict__["__mro__"].__get__(type(instance)):
        if "__slots__" in vars(kind):
            own.update(_slots(kind, instance))
    return tuple(own), tuple(own.values())


def _slots(kind: type, instance: Any) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, member in vars(kind).items():
        if type(member).__name__ == "member_descriptor":
            try:
                found.append((name, member.__get__(instance)))
            except AttributeError:  # not set
                continue
    return found
