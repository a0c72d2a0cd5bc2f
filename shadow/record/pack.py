"""Events to tables: one chunk's worth of them becomes blocks of integers, a table of values and arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from shadow.observation import Event
from shadow.record import tables
from shadow.record.lists import pack_lists
from shadow.record.matrix import pack_matrix
from shadow.record.names import Dictionary
from shadow.record.packing import pack, pack_steps
from shadow.record.values import ArrayPlace, are_integers, integers_of, is_observed, tree_bytes

INTEGER, VALUE, ARRAY = range(3)
"""What the integers of a row stand for: themselves, the number of a value, the number of an array."""

_PLAIN = frozenset((int, str, bool, tuple, type(None)))
EXTRAS = tuple(field for field in dataclasses.fields(Event) if field.name not in ("point", "step", "values"))


def extras_of(event: Event) -> dict[str, Any]:
    """The event's fields beside point, step and values that do not have their default."""
    found = {}
    for field in EXTRAS:
        value = getattr(event, field.name)
        default = field.default_factory() if callable(field.default_factory) else field.default
        if value != default:
            found[field.name] = value
    return found


def array_field(value: Any) -> str | None:
    """The name of the one field of an observed value that holds an array."""
    if not is_observed(value):
        return None
    names = [f.name for f in dataclasses.fields(value) if isinstance(getattr(value, f.name), np.ndarray)]
    return names[0] if len(names) == 1 else None


class _Values:
    """The distinct values of a chunk that are no integers, in order of first appearance."""

    def __init__(self) -> None:
        self.numbers: dict[object, int] = {}
        self.forms: list[int] = []
        self.trees: list[bytes] = []
        self.around: dict[bytes, int] = {}
        self.lists: list[tuple[int, ...]] = []
        self.bases: list[int] = []
        self._list_of: dict[int, int] = {}

    def number(self, value: Any, before: int) -> int:
        """`before`: the number of the value that stood in this place last, or -1."""
        form = integers_of(value)
        known = tree_bytes(value) if form is None else form
        number = self.numbers.get(known)
        if number is not None:
            return number
        number = self.numbers[known] = len(self.forms)
        if form is None:
            assert isinstance(known, bytes)
            self.trees.append(known)
            self.forms.append(0)
        else:
            around, integers = form
            self._list_of[number] = len(self.lists)
            self.bases.append(self._list_of.get(before, -1))
            self.lists.append(integers)
            self.forms.append(1 + self.around.setdefault(around, len(self.around)))
        return number

    def column(self, column: Sequence[Any]) -> list[int]:
        numbers: list[int] = []
        last, number = object(), -1
        for value in column:
            if value is not last:
                last, number = value, self.number(value, number)
            numbers.append(number)
        return numbers


class ArrayPacker:
    """Takes arrays out of events one by one; page digests keep the columns that did not change."""

    def __init__(self) -> None:
        self.count = 0
        self._last: dict[object, tuple[int, np.ndarray]] = {}

    def take(self, index: int, event: Event) -> tuple[Event, tables.Arrays | None]:
        """The event with places for its arrays, and the arrays."""
        arrays = {
            key: name
            for key, value in event.values.items()
            if type(value) not in _PLAIN and (name := array_field(value)) is not None
        }
        if not arrays:
            return event, None
        values: dict[Any, Any] = dict(event.values)
        taken: list[tables.Array] = []
        for key, name in arrays.items():
            values[key] = ArrayPlace(self.count)
            taken.append(self._pack(key, name, event.values[key]))
        return dataclasses.replace(event, values=values), tables.Arrays(index, tuple(taken))

    def _pack(self, key: object, name: str, value: Any) -> tables.Array:
        array: np.ndarray = getattr(value, name)
        others = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.name != name]
        around = tree_bytes((type(value).__name__, name, *others))
        number, self.count = self.count, self.count + 1
        base, kept = -1, 0
        if array.ndim == 2 and array.shape[1]:
            before, last = self._last.get(key, (-1, None))
            if last is not None and last.dtype == array.dtype and len(last) == len(array):
                width = min(last.shape[1], array.shape[1])
                differs = _bits(last[:, :width]) != _bits(array[:, :width])
                changed = np.flatnonzero(differs.any(axis=0))
                base, kept = before, int(changed[0]) if len(changed) else width
            self._last[key] = (number, array.copy())
        data = np.ascontiguousarray(array[:, kept:] if base >= 0 else array).tobytes()
        return tables.Array(around, array.dtype.str, array.shape, base, kept, data)


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def pack_chunk(
    first_event: int, events: Sequence[Event], dictionary: Dictionary, arrays: int
) -> tables.Chunk:
    """`events` follow each other, hold ArrayPlace where arrays were, and are at least one."""
    values = _Values()
    shapes = [dictionary.shape(event.point, tuple(event.values)) for event in events]
    blocks: list[tables.Block] = []
    for shape in dict.fromkeys(shapes):
        rows = [tuple(e.values.values()) for e, own in zip(events, shapes, strict=True) if own == shape]
        blocks.append(_block(rows, dictionary.shapes[shape].order, values))
    extras = [extras_of(event) for event in events]
    numbers = [values.number(extra, -1) + 1 if extra else 0 for extra in extras]
    return tables.Chunk(
        first_event=first_event,
        steps=pack_steps(np.asarray([event.step for event in events], np.int64)),
        shapes=pack(np.asarray(shapes, np.int64)),
        extras=pack(np.asarray(numbers, np.int64)),
        blocks=tuple(blocks),
        forms=pack(np.asarray(values.forms, np.int64)),
        trees=tuple(values.trees),
        around=tuple(values.around),
        lists=pack_lists(values.lists, values.bases),
        arrays=arrays,
    )


def _block(rows: list[tuple[Any, ...]], order: np.ndarray, values: _Values) -> tables.Block:
    """`rows`: the values of one event each, of events of one shape."""
    matrix = np.empty((len(rows[0]), len(rows)), np.int64)
    classes = bytearray(len(rows[0]))
    for place, column in enumerate(zip(*rows, strict=True)):
        kinds = set(map(type, column))
        if kinds == {int} and are_integers(column):
            matrix[place] = column
        elif kinds == {ArrayPlace}:
            classes[place] = ARRAY
            matrix[place] = [cell.number for cell in column]
        else:
            classes[place] = VALUE
            matrix[place] = values.column(column)
    packed = pack_matrix(matrix, order)
    return tables.Block(bytes(classes), packed.modes, packed.first, packed.slope, packed.rest)


encode = msgspec.msgpack.Encoder().encode
