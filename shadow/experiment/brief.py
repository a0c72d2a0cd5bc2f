"""Short texts of values. No code of the values' own classes is run: a `__repr__` may raise, wait or write."""

from __future__ import annotations

import enum
import itertools
from collections import deque
from typing import Any

from shadow.experiment.arrays import array_text
from shadow.experiment.storage import MISSING, held, items_of, on_class

_ITEMS = 6
_DEPTH = 3


def brief(value: Any, limit: int = 160) -> str:
    """`value` in at most `limit` characters: exact for plain values, by type for objects."""
    text = _text(value, _DEPTH)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _text(value: Any, depth: int) -> str:
    kind = type(value)
    if value is MISSING:
        return "(absent)"
    if value is None or kind in (bool, float, complex):
        return repr(value)
    if kind is int:
        return repr(value) if value.bit_length() < 512 else f"<int of {value.bit_length()} bits>"
    if kind in (str, bytes, bytearray):
        shown = kind.__repr__(value[:400])
        return shown if len(value) <= 400 else shown + f"… ({len(value)} in all)"
    if issubclass(kind, enum.Enum):
        return f"{kind.__name__}.{value._name_}"
    if issubclass(kind, BaseException):
        return f"{kind.__name__}({_items(value.args, depth)})"
    if issubclass(kind, list | tuple | set | frozenset | deque):
        return _sequence(value, depth)
    if issubclass(kind, dict):
        size = dict.__len__(value)
        if not depth:
            return f"{{{size} items}}"
        pairs = itertools.islice(dict.items(value), _ITEMS)
        return f"{{{', '.join(f'{_text(k, 0)}: {_text(v, depth - 1)}' for k, v in pairs)}{_more(size)}}}"
    declared = on_class(kind, "__dataclass_fields__")
    if declared is not None and depth:
        names = itertools.islice(declared[1], _ITEMS)
        inner = ", ".join(f"{name}={_text(held(value, name), depth - 1)}" for name in names)
        return f"{kind.__name__}({inner}{_more(len(declared[1]))})"
    if array := array_text(value):
        return array
    return f"<class {value.__name__}>" if issubclass(kind, type) else f"<{kind.__name__}>"


def _sequence(value: Any, depth: int) -> str:
    kind = type(value)
    opening, closing = "()" if issubclass(kind, tuple) else "[]" if issubclass(kind, list | deque) else "{}"
    if not depth:
        return f"{opening}{sum(1 for _ in items_of(value))} items{closing}"
    return f"{opening}{_items(value, depth)}{closing}"


def _items(value: Any, depth: int) -> str:
    items = list(itertools.islice(items_of(value), _ITEMS + 1))
    shown = ", ".join(_text(item, depth - 1) for item in items[:_ITEMS])
    return shown + (_more(sum(1 for _ in items_of(value))) if len(items) > _ITEMS else "")


def _more(count: int) -> str:
    return f", … {count} in all" if count > _ITEMS else ""
