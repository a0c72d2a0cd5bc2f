"""Observed values as bytes and back. Equal bytes mean equal values, so records compare without decoding them.

Two forms: a tuple of integers, bare or as the one such field of an observed value (page lists above all),
stays integers for `shadow.record.lists`; everything else becomes one MessagePack tree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any

import msgspec

from shadow import observation, plain
from shadow.record.format import RecordError

_RECORD, _OPAQUE, _BIG, _TEXT, _OBSERVED, _MAPPING, _PLACE, _ENUM = range(1, 9)
_INT64 = range(-(1 << 63), 1 << 63)
_NATIVE = frozenset((int, str, bool, float, bytes, type(None)))
_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder()
_VALUES: dict[str, type] = {
    name: value
    for name, value in vars(observation).items()
    if dataclasses.is_dataclass(value) and isinstance(value, type)
}
_FIELDS = {kind: tuple(field.name for field in dataclasses.fields(kind)) for kind in _VALUES.values()}
_ENUMS: dict[str, type[Enum]] = {
    name: value
    for name, value in vars(observation).items()
    if isinstance(value, type) and issubclass(value, Enum) and value.__module__ == observation.__name__
}


def is_observed(value: Any) -> bool:
    """Whether it is one of the frozen values of shadow.observation."""
    kind = type(value)
    return _VALUES.get(kind.__name__) is kind


@dataclasses.dataclass(frozen=True)
class ArrayPlace:
    """Stands for an array of an event; `number` counts the arrays of a chunk."""

    number: int


def text_bytes(text: str) -> bytes:
    """UTF-8 that carries lone surrogates, which JSON strings may hold."""
    return text.encode("utf-8", "surrogatepass")


def bytes_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def are_integers(values: Sequence[Any]) -> bool:
    """Whether an integer column can hold them: ints, no bools, that fit 64 bits."""
    if not values:
        return True
    return set(map(type, values)) == {int} and min(values) >= -(1 << 63) and max(values) < 1 << 63


def integers_of(value: Any) -> tuple[bytes, tuple[int, ...]] | None:
    """(what is around the integers, the integers) of a value that is a tuple of them but for a name or so."""
    if type(value) is tuple:
        return (b"", value) if are_integers(value) else None
    names = _FIELDS.get(type(value))
    if names is None:
        return None
    items = [getattr(value, name) for name in names]
    lists = [place for place, item in enumerate(items) if type(item) is tuple and are_integers(item)]
    if len(lists) != 1:
        return None
    place = lists[0]
    others = [item for item in zip(names, items, strict=True) if item[0] != names[place]]
    head = (type(value).__name__, names[place])
    if all(type(item) in _NATIVE for _, item in others):
        return _around(*head, *(part for pair in others for part in pair)), items[place]
    return tree_bytes((*head, *others)), items[place]


@lru_cache(maxsize=1024, typed=True)
def _around(name: str, field: str, *others: Any) -> bytes:
    return tree_bytes((name, field, *zip(others[::2], others[1::2], strict=True)))


def from_integers(around: bytes, integers: tuple[int, ...]) -> Any:
    """The value that `integers_of` took apart."""
    if not around:
        return integers
    name, field, *others = bytes_tree(around)
    return construct(name, {field: integers, **dict(others)})


def tree_bytes(value: Any) -> bytes:
    """Plain trees, frozen values of shadow.observation without arrays, mappings of them.

    RecordError for anything else.
    """
    return _encoder.encode(_to_wire(value))


@lru_cache(maxsize=4096)
def bytes_tree(data: bytes) -> Any:
    """RecordError for bytes that `tree_bytes` does not write. Remembered: many chunks hold the same trees."""
    try:
        return _from_wire(_decoder.decode(data))
    except (msgspec.DecodeError, TypeError, ValueError, LookupError, RecursionError) as error:
        raise RecordError(f"a value cannot be read ({type(error).__name__}: {error}): damaged") from error


def _extension(code: int, wire: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, _encoder.encode(wire))


def _text(text: str) -> Any:
    try:
        text.encode()
    except UnicodeEncodeError:
        return msgspec.msgpack.Ext(_TEXT, text_bytes(text))
    return text


def _to_wire(value: Any) -> Any:
    kind = type(value)
    if value is None or kind in (bool, float, bytes):
        return value
    if kind is int:
        return value if value in _INT64 else msgspec.msgpack.Ext(_BIG, str(value).encode())
    if kind is str:
        return _text(value)
    if kind is tuple:
        return [_to_wire(item) for item in value]
    if kind is plain.Record:
        return _extension(_RECORD, [_text(value.name), *(_to_wire(part) for f in value.fields for part in f)])
    if kind is plain.Opaque:
        return _extension(_OPAQUE, _text(value.type_name))
    if _ENUMS.get(kind.__name__) is kind:
        return _extension(_ENUM, [kind.__name__, value.name])
    if isinstance(value, Mapping):
        return _extension(_MAPPING, [[_to_wire(key), _to_wire(item)] for key, item in value.items()])
    if kind is ArrayPlace:
        return _extension(_PLACE, value.number)
    if is_observed(value):
        fields = [[f.name, _to_wire(getattr(value, f.name))] for f in dataclasses.fields(value)]
        return _extension(_OBSERVED, [kind.__name__, fields])
    raise RecordError(f"a value of type {kind.__name__} has no form in a record")


def _from_wire(wire: Any) -> Any:
    if isinstance(wire, list):
        if _NATIVE.issuperset(map(type, wire)):
            return tuple(wire)
        return tuple(_from_wire(item) for item in wire)
    if not isinstance(wire, msgspec.msgpack.Ext):
        return wire
    data = bytes(wire.data)
    if wire.code == _BIG:
        return int(data)
    if wire.code == _TEXT:
        return bytes_text(data)
    inner = _from_wire(_decoder.decode(data))
    if wire.code == _RECORD:
        name, *parts = inner
        return plain.Record(name, tuple(zip(parts[::2], parts[1::2], strict=True)))
    if wire.code == _OPAQUE:
        return plain.Opaque(inner)
    if wire.code == _OBSERVED:
        name, fields = inner
        return construct(name, dict(fields))
    if wire.code == _PLACE:
        return ArrayPlace(inner)
    if wire.code == _ENUM:
        name, member = inner
        return _ENUMS[name][member]
    if wire.code == _MAPPING:
        return dict(inner)
    raise ValueError(f"unknown form {wire.code}")


def construct(name: str, fields: Mapping[str, Any]) -> Any:
    """A value of shadow.observation by its name; RecordError for one that it does not have."""
    if name not in _VALUES:
        raise RecordError(
            f"holds values of type {name}, which this shadow does not know: use the one that wrote it"
        )
    return _VALUES[name](**fields)
