"""The name of a value's type: module-qualified, elements of containers sampled, never the value itself.

Nothing here runs code of the traced program: only exact built-in containers are looked into.
"""

from __future__ import annotations

import collections
import sys
import types
from collections.abc import Iterable
from itertools import islice
from typing import Any

#: Elements of one container that are looked at; more kinds of elements than `_KINDS` are `Any`.
SAMPLE = 16
_KINDS = 3
_EXACT_TUPLE = 3

_ONE: dict[type, str] = {
    list: "list",
    set: "set",
    frozenset: "frozenset",
    collections.deque: "collections.deque",
    collections.Counter: "collections.Counter",
}
_TWO: dict[type, str] = {
    dict: "dict",
    collections.OrderedDict: "collections.OrderedDict",
    collections.defaultdict: "collections.defaultdict",
}
#: Classes whose elements are part of the type.
CONTAINERS = frozenset({tuple, *_ONE, *_TWO})

_CALLABLE = "collections.abc.Callable"
_NAMED: dict[type, str] = {
    type(None): "None",
    types.FunctionType: _CALLABLE,
    types.BuiltinFunctionType: _CALLABLE,
    types.MethodType: _CALLABLE,
    types.MethodWrapperType: _CALLABLE,
    types.ModuleType: "types.ModuleType",
    types.GeneratorType: "collections.abc.Generator",
    types.AsyncGeneratorType: "collections.abc.AsyncGenerator",
    types.CoroutineType: "collections.abc.Coroutine",
    type({}.keys()): "collections.abc.KeysView",
    type({}.values()): "collections.abc.ValuesView",
    type({}.items()): "collections.abc.ItemsView",
}
_PORTABLE = {"pathlib.PosixPath": "pathlib.Path", "pathlib.WindowsPath": "pathlib.Path"}
_known: dict[type, str] = {}
#: Modules of the classes that were named so far: where a name with dots has its module's end.
modules: set[str] = set()


def type_name(value: Any, depth: int) -> str:
    """`torch.Tensor`, `list[int | str]`, `dict[str, app.Box]`, `tuple[int, ...]`, `type[app.Box]`, `None`.

    A container without elements, or deeper than `depth`, is its bare name.
    """
    kind = type(value)
    if kind in _ONE:
        return _generic(_ONE[kind], [value], depth)
    if kind in _TWO:
        try:
            pairs = tuple(islice(value.items(), SAMPLE))
        except RuntimeError:  # another thread is changing it
            pairs = ()
        return _generic(_TWO[kind], ([k for k, _ in pairs], [v for _, v in pairs]), depth)
    if kind is tuple:
        return _tuple(value, depth)
    if isinstance(kind, type) and issubclass(kind, type):
        return f"type[{class_name(value)}]"
    return class_name(kind)


def class_name(kind: type) -> str:
    """Name under which the class, or the first of its bases that can be imported, is imported."""
    name = _known.get(kind)
    if name is None:
        if len(_known) > 4096:  # a program that makes classes as it goes must not fill the memory
            _known.clear()
        name = _known[kind] = _NAMED.get(kind) or next(filter(None, map(_importable, _mro(kind))), "object")
    return name


def _mro(kind: type) -> tuple[type, ...]:
    return type.__dict__["__mro__"].__get__(kind)


def _importable(kind: type) -> str | None:
    module, name = type.__dict__["__module__"].__get__(kind), type.__dict__["__qualname__"].__get__(kind)
    if not isinstance(module, str) or "<locals>" in name:
        return None
    if module == "builtins":
        return name if getattr(sys.modules["builtins"], name, None) is kind else None
    for place in (_public(module), module):
        if _lookup(place, name) is kind:
            modules.add(place)
            return _PORTABLE.get(f"{place}.{name}", f"{place}.{name}")
    return None


def _public(module: str) -> str:
    """`io` for `_io`, `torch` for `torch._C`: where people import it from, if it is there."""
    head, *rest = module.split(".")
    private = next((index for index, part in enumerate(rest) if part.startswith("_")), len(rest))
    return ".".join([head.lstrip("_") or head, *rest[:private]])


def _lookup(module: str, name: str) -> Any:
    """What the module binds, found in namespaces alone: a module's __getattr__ is code of the program."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        namespace = getattr(found, "__dict__", {}) if isinstance(found, types.ModuleType | type) else {}
        found = namespace.get(part)
    return found


def _generic(origin: str, columns: Iterable[Iterable[Any]], depth: int) -> str:
    arguments = [_union(column, depth - 1) for column in columns] if depth > 0 else []
    return f"{origin}[{', '.join(arguments)}]" if arguments and all(arguments) else origin


def _tuple(value: tuple[Any, ...], depth: int) -> str:
    if not value or depth <= 0:
        return "tuple"
    if len(value) <= _EXACT_TUPLE:
        return f"tuple[{', '.join(type_name(item, depth - 1) for item in value)}]"
    return f"tuple[{_union(value, depth - 1)}, ...]"


def _union(values: Iterable[Any], depth: int) -> str:
    """Names of the sampled elements joined with `|`, "" for none, `Any` for too many kinds."""
    try:
        sample = tuple(islice(values, SAMPLE))
    except RuntimeError:  # another thread is changing it
        return ""
    names = sorted({type_name(value, depth) for value in sample})
    return " | ".join(names) if len(names) <= _KINDS + ("None" in names) else "Any"
