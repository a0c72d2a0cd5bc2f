"""Tables to events: a chunk whose parts are decoded when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from shadow.observation import Event, Key, Observed, Point
from shadow.record import tables
from shadow.record.format import RecordError
from shadow.record.lists import unpack_lists
from shadow.record.matrix import PackedMatrix, unpack_matrix
from shadow.record.names import Shape
from shadow.record.pack import ARRAY, VALUE
from shadow.record.packing import unpack, unpack_steps
from shadow.record.values import ArrayPlace, bytes_tree, construct, from_integers

ReadArray = Callable[[int], tables.Array]
"""The stored array of that number within the chunk."""


class Block:
    """The events of one shape: `events` int64 [n], their places in the chunk; `classes` uint8 [keys]."""

    def __init__(self, shape: Shape, events: np.ndarray, table: tables.Block) -> None:
        self.shape, self.events, self._table = shape, events, table
        self.classes = np.frombuffer(table.classes, np.uint8)
        if len(self.classes) != len(shape.keys):
            raise ValueError(f"{len(self.classes)} classes for {len(shape.keys)} keys")

    @cached_property
    def matrix(self) -> np.ndarray:
        """int64 [keys, events]."""
        table = self._table
        packed = PackedMatrix(table.modes, table.first, table.slope, table.rest)
        return unpack_matrix(packed, self.shape.order, len(self.events))


class Chunk:
    """Consecutive events of a record. Numbers of values and arrays hold within it only."""

    def __init__(self, table: tables.Chunk, shapes: Sequence[Shape], read_array: ReadArray) -> None:
        self._table, self._read_array = table, read_array
        self.first_event = table.first_event
        self.steps = unpack_steps(table.steps)
        self.shape_numbers = unpack(table.shapes, len(self.steps))
        self._arrays: dict[int, np.ndarray] = {}
        kinds = list(dict.fromkeys(self.shape_numbers.tolist()))
        self.blocks = [
            Block(shapes[number], np.flatnonzero(self.shape_numbers == number), block)
            for number, block in zip(kinds, table.blocks, strict=True)
        ]
        self._block_of = dict(zip(kinds, self.blocks, strict=True))

    def __len__(self) -> int:
        return len(self.steps)

    @cached_property
    def _extras(self) -> np.ndarray:
        return unpack(self._table.extras, len(self))

    @cached_property
    def identities(self) -> list[bytes | tuple[bytes, tuple[int, ...]]]:
        """By number, what is equal exactly where the chunk's values are: a tree's bytes, or what is around a
        list of integers and the integers."""
        trees, lists = iter(self._table.trees), iter(unpack_lists(self._table.lists))
        around = self._table.around
        return [
            (around[form - 1], next(lists)) if form else next(trees)
            for form in unpack(self._table.forms).tolist()
        ]

    def value(self, number: int) -> Any:
        """The value of that number: a plain tree or a value of shadow.observation."""
        identity = self.identities[number]
        if isinstance(identity, tuple):
            return from_integers(*identity)
        found = bytes_tree(identity)
        return self.array(found.number) if isinstance(found, ArrayPlace) else found

    def integers(self, number: int) -> tuple[int, ...]:
        """The integers of value `number`. ValueError for a value that is no list of them."""
        identity = self.identities[number]
        if not isinstance(identity, tuple):
            raise ValueError(f"value {number} is no list of integers")
        return identity[1]

    def array(self, number: int) -> Observed:
        """The observed value that holds array `number`."""
        name, field, *others = bytes_tree(self._read_array(number).around)
        fields = dict(others)
        fields[field] = self._array(number)
        observed: Observed = construct(name, fields)
        return observed

    def _array(self, number: int) -> np.ndarray:
        known = self._arrays.get(number)
        if known is not None:
            return known
        stored = self._read_array(number)
        dtype = np.dtype(stored.dtype)
        if stored.base < 0:
            array = np.frombuffer(stored.data, dtype).reshape(stored.shape)
        elif stored.base < number and len(stored.shape) == 2:
            kept = self._array(stored.base)[:, : stored.kept]
            rest = np.frombuffer(stored.data, dtype).reshape(stored.shape[0], -1)
            array = np.concatenate([kept, rest], axis=1).reshape(stored.shape)
        else:
            raise RecordError(f"array {number} continues one that is not before it: damaged")
        self._arrays[number] = array
        return array

    def extra(self, index: int) -> int:
        """The number, plus one, of the value that holds what event `index` has beside values; 0 for nothing."""
        return int(self._extras[index])

    def event(self, index: int, *, only_rest: bool = False) -> Event:
        """Event `index` of this chunk as it was recorded; `only_rest`: without its values."""
        block = self._block_of[int(self.shape_numbers[index])]
        values: dict[Key, Observed] = {}
        if not only_rest:
            column = block.matrix[:, int(np.searchsorted(block.events, index))].tolist()
            cells = zip(block.shape.keys, block.classes.tolist(), column, strict=True)
            values = {key: self.cell(cls, number) for key, cls, number in cells}
        extra = self.extra(index)
        more: Mapping[str, Any] = self.value(extra - 1) if extra else {}
        return Event(block.shape.point, int(self.steps[index]), values, **more)

    def point(self, index: int) -> Point:
        """Where event `index` was taken."""
        return self._block_of[int(self.shape_numbers[index])].shape.point

    def cell(self, cls: int, number: int) -> Observed:
        """What an integer of class `cls` stands for."""
        if cls == VALUE:
            observed: Observed = self.value(number)
            return observed
        return self.array(number) if cls == ARRAY else number
