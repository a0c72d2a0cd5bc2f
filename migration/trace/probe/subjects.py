"""A traced class and the functions in its body, seen through properties and decorators."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any

_GENERATORS = {0x20: "collections.abc.Generator", 0x200: "collections.abc.AsyncGenerator"}
#: Called at every attribute access: what they show is not worth what they would cost.
_SKIPPED = {"__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__class__"}


@dataclass(frozen=True, eq=False)
class Subject:
    """A class to trace: `path` as the user spelled it, `pkg.module:Class`."""

    path: str
    kind: type

    def owns(self, value: Any) -> bool:
        """True for an instance of the class; asks no __class__ and no __subclasscheck__ of the program."""
        return self.kind in type.__dict__["__mro__"].__get__(type(value))


@dataclass(frozen=True, eq=False)
class Method:
    """One function of the class body. `returns` is False where a decorator may change what comes back."""

    name: str
    code: CodeType
    function: FunctionType
    has_self: bool
    returns: bool

    @property
    def generator(self) -> str | None:
        """What a call gives when the body only runs as it is consumed."""
        return next((name for flag, name in _GENERATORS.items() if self.code.co_flags & flag), None)

    @property
    def named(self) -> tuple[str, ...]:
        """Parameters that have a name, positional ones first."""
        return self.code.co_varnames[: self.code.co_argcount + self.code.co_kwonlyargcount]

    @property
    def gathered(self) -> tuple[str | None, str | None]:
        """Names of `*args` and `**kwargs`."""
        rest = list(self.code.co_varnames[len(self.named) :])
        star = rest.pop(0) if self.code.co_flags & 0x04 else None
        return star, rest.pop(0) if self.code.co_flags & 0x08 else None


def methods(kind: type) -> Iterator[Method]:
    """Every function of the class body itself; inherited ones belong to the class that defines them."""
    for name, value in vars(kind).items():
        if name in _SKIPPED:
            continue
        if isinstance(value, staticmethod | classmethod):
            yield from _method(kind, name, value.__func__, isinstance(value, classmethod))
        elif isinstance(value, property):
            for suffix, function in (
                (".getter", value.fget),
                (".setter", value.fset),
                (".deleter", value.fdel),
            ):
                yield from _method(kind, name + suffix, function, True)
        else:
            getter = isinstance(value, functools.cached_property)
            inner = value.func if getter or isinstance(value, functools.partialmethod) else value
            yield from _method(kind, name + ".getter" * getter, inner, True)


def _method(kind: type, name: str, value: Any, has_self: bool) -> Iterator[Method]:
    inner = _unwrapped(kind, value)
    if inner is not None:
        yield Method(name, inner.__code__, inner, has_self, inner is value)


def _unwrapped(kind: type, value: Any) -> FunctionType | None:
    """The function that the class body defines, under decorators that keep it in reach.

    A wrapper that some decorator made is not followed itself: its code serves other functions as well.
    """
    for _ in range(32):  # a chain of __wrapped__ may lead back to its start
        if isinstance(value, FunctionType) and _is_own(kind, value):
            return value
        wrapped = _own_dict(value).get("__wrapped__")
        if wrapped is None and isinstance(value, FunctionType):
            wrapped = next((f for f in _enclosed(value) if _is_own(kind, f)), None)
        if wrapped is None:
            break
        value = wrapped
    shared = isinstance(value, FunctionType) and "<locals>" not in value.__code__.co_qualname
    return value if shared else None


def _own_dict(value: Any) -> dict[str, Any]:
    try:
        return dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        return {}


def _is_own(kind: type, function: FunctionType) -> bool:
    head, _, name = function.__code__.co_qualname.rpartition(".")
    return head == kind.__qualname__ and name != "<lambda>"


def _enclosed(function: FunctionType) -> Iterator[FunctionType]:
    for cell in function.__closure__ or ():
        value = _content(cell)
        if isinstance(value, FunctionType):
            yield value


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None
