"""Every field of every sequence."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from shadow.observation import Key, Kind, Point
from shadow.observe.probe import PlainProbe, Subject, Values, key
from shadow.plain import Plain, Record, plain

_SHOWN = 16  # numbers of a tensor; of a longer one the last few, and a digest of all


@lru_cache(maxsize=64)
def _slots(cls: type) -> tuple[str, ...]:
    return tuple(sorted(name for base in cls.__mro__ for name in getattr(base, "__slots__", ())))


def _field_names(entry: Any) -> tuple[str, ...]:
    slots = _slots(type(entry))  # type: ignore[arg-type]  # mypy takes a class of Any for unhashable
    more = getattr(entry, "__dict__", None)
    return tuple(sorted({*slots, *more})) if more else slots


@lru_cache(maxsize=64)
def _reader(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*names) if len(names) > 1 else lambda entry: tuple(getattr(entry, n) for n in names)


@lru_cache(maxsize=1 << 14)
def _keys(label: str, names: tuple[str, ...]) -> tuple[Key, ...]:
    return tuple(key(Kind.SEQUENCE, label, name) for name in names)


class _Fields:
    """Plain forms of the fields of one sequence; quick, for there are a thousand of them at each step."""

    def __init__(self) -> None:
        self._frozen: dict[int, tuple[Any, Plain]] = {}

    def of(self, entry: Any, field_names: tuple[str, ...], names: Mapping[str, str]) -> list[Plain]:
        """In the order of `field_names`."""
        try:
            values = list(_reader(field_names)(entry))
        except AttributeError:  # a slot that was never set
            values = [getattr(entry, name, None) for name in field_names]
        for at, value in enumerate(values):
            sort = type(value)
            if sort is int or sort is bool or value is None:
                continue
            if sort is str:
                values[at] = names.get(value, value)
            elif isinstance(value, Enum):
                values[at] = value.name
            elif isinstance(value, torch.Tensor):
                # what lies behind the tokens decoded so far is uninitialised memory
                end = entry.decoded_length if field_names[at] == "decoded_tokens" else None
                values[at] = plain(value) if value.is_floating_point() else _tokens(value, end)
            else:
                values[at] = self._object(value, names)
        return values

    def _object(self, value: Any, names: Mapping[str, str]) -> Plain:
        """Frozen objects, parameters of requests above all, are looked at once."""
        if not (is_dataclass(value) and getattr(value, "__dataclass_params__").frozen):  # noqa: B009
            return plain(value, names)
        known = self._frozen.get(id(value))
        if known is None or known[0] is not value:
            known = self._frozen[id(value)] = (value, plain(value, names))
        return known[1]


def _tokens(tensor: torch.Tensor, end: int | None) -> Plain:
    numbers: np.ndarray = tensor.numpy() if tensor.device.type == "cpu" else tensor.cpu().numpy()
    numbers = numbers[..., :end]
    flat = numbers.reshape(-1)
    if len(flat) > _SHOWN:
        digest = hashlib.blake2b(flat.tobytes(), digest_size=8).hexdigest()
        content: Plain = f"… {flat[-8:].tolist()} (#{digest})"
    else:
        content = tuple(flat.tolist())
    return Record("Tensor", (("dtype", str(numbers.dtype)), ("shape", numbers.shape), ("content", content)))


class Sequences(PlainProbe):
    kind = Kind.SEQUENCE
    points = frozenset((Point.PREFILL, Point.DECODE, Point.BOUNDARY, Point.END))
    structural = True

    def __init__(self) -> None:
        self._fields = _Fields()

    def install(self, subject: Subject) -> None:
        self._fields = _Fields()

    def values(self, subject: Subject, point: Point) -> Values:
        names = subject.names
        values: Values = {}
        for entry in subject.entries:
            fields = _field_names(entry)
            of_entry = self._fields.of(entry, fields, names.by_uuid)
            values.update(zip(_keys(names.label(entry), fields), of_entry, strict=True))
        return values
