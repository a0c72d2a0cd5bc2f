"""What an object holds, read and written past every hook of its class: no code of its own is run.

A function that only watches (see `watching`) is looked past as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import FunctionType, MemberDescriptorType
from typing import Any

#: Stands where there is no value.
MISSING: Any = type("Missing", (), {})()

#: Set on hooks that only watch: what was there before, or MISSING.
WATCHES = "__shadow_watches__"

_slots: dict[type, tuple[MemberDescriptorType, ...]] = {}
_TYPE_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]


def is_a(value: Any, kinds: Any) -> bool:
    """`isinstance` that does not ask the value for its `__class__`."""
    return issubclass(type(value), kinds)


def class_dict(cls: type) -> Any:
    """The namespace of `cls` itself, without its bases."""
    return _TYPE_DICT.__get__(cls)


def mro(cls: type) -> tuple[type, ...]:
    return _MRO.__get__(cls)


def on_class(cls: type, name: str) -> tuple[type, Any] | None:
    """(class that defines it, the raw attribute) as lookup on an instance would find it."""
    for klass in mro(cls):
        namespace = class_dict(klass)
        if name in namespace:
            return klass, namespace[name]
    return None


def slots_of(cls: type) -> tuple[MemberDescriptorType, ...]:
    """The slots that Python classes of the hierarchy declare."""
    found = _slots.get(cls)
    if found is None:
        found = tuple(
            member
            for klass in mro(cls)
            if "__slots__" in class_dict(klass)
            for member in class_dict(klass).values()
            if type(member) is MemberDescriptorType and member.__objclass__ is klass
        )
        _slots[cls] = found
    return found


def instance_dict(value: Any) -> dict[str, Any] | None:
    """The object's own `__dict__`, None when it has none."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None


def unhooked(value: Any) -> Any:
    """What is bound where a hook that only watches is, MISSING where that is nothing; any other value itself."""
    while type(value) is FunctionType and WATCHES in vars(value):
        value = vars(value)[WATCHES]
    return value


def stored(value: Any) -> dict[str, Any]:
    """Every attribute that the instance itself holds: its `__dict__` and its slots."""
    found = dict(instance_dict(value) or {})
    for name in [name for name, item in found.items() if type(item) is FunctionType]:
        found[name] = unhooked(found[name])
        if found[name] is MISSING:
            del found[name]
    for slot in slots_of(type(value)):
        try:
            found[slot.__name__] = slot.__get__(value, type(value))
        except AttributeError:
            continue
    return found


def held(value: Any, name: str) -> Any:
    """One attribute that the instance itself holds, or MISSING."""
    own = instance_dict(value)
    if own is not None and name in own:
        return unhooked(own[name])
    for slot in slots_of(type(value)):
        if slot.__name__ == name:
            try:
                return slot.__get__(value, type(value))
            except AttributeError:
                return MISSING
    return MISSING


def store(value: Any, name: str, item: Any) -> None:
    """Sets what `held` reads, past `__setattr__`."""
    object.__setattr__(value, name, item)


def items_of(value: Any) -> Iterator[Any]:
    """The items of a list, tuple, set, frozenset or deque, past an `__iter__` of a subclass."""
    for base in (list, tuple, set, frozenset, deque):
        if is_a(value, base):
            return iter(base.__iter__(value))
    raise TypeError(f"{type(value).__name__} is no container of items")


_class_names: dict[type, tuple[int, dict[str, type]]] = {}


def class_data(cls: type) -> dict[str, Any]:
    """What an instance could change in place through its class: lists, dicts and other values of the class body."""
    size = sum(len(class_dict(klass)) for klass in mro(cls))
    known = _class_names.get(cls)
    if known is None or known[0] != size:
        known = _class_names[cls] = (size, _data_names(cls))
    return {name: class_dict(klass).get(name) for name, klass in known[1].items()}


def _data_names(cls: type) -> dict[str, type]:
    found: dict[str, type] = {}
    hidden: set[str] = set()
    for klass in mro(cls):
        for name, value in class_dict(klass).items():
            if (
                klass is not object
                and name not in hidden
                and not (name.startswith("__") and name.endswith("__"))
            ):
                hidden.add(name)
                if not hasattr(type(value), "__get__") and not is_a(value, type):
                    found[name] = klass
    return found
