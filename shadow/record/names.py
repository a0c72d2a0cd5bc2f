"""The dictionaries of a record: strings, keys and shapes, numbered in order of first appearance."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

import numpy as np

from shadow.observation import Key, Kind, Point
from shadow.record import tables
from shadow.record.format import RecordError
from shadow.record.packing import pack, pack_steps, unpack, unpack_steps
from shadow.record.values import bytes_text, text_bytes

M = TypeVar("M", bound=StrEnum)


@dataclass(frozen=True, eq=False)
class Shape:
    """One sort of event: its point and its keys in order. `order` sorts the keys' rows by kind and field, so
    that those of different sequences that hold the same thing become neighbours."""

    point: Point
    keys: tuple[Key, ...]
    order: np.ndarray


def _order(keys: tuple[Key, ...]) -> np.ndarray:
    place: dict[tuple[str, str], int] = {}
    groups = [place.setdefault((key.kind, key.field), len(place)) for key in keys]
    return np.argsort(np.asarray(groups, np.int64), kind="stable")


@dataclass
class Dictionary:
    """Grows on both sides alike: the writer numbers what is new, the reader adds what it is told."""

    strings: dict[str, int] = field(default_factory=dict)
    keys: dict[Key, int] = field(default_factory=dict)
    numbers: dict[tuple[Point, tuple[Key, ...]], int] = field(default_factory=dict)
    shapes: list[Shape] = field(default_factory=list)
    _told: tuple[int, int, int] = (0, 0, 0)

    def shape(self, point: Point, keys: tuple[Key, ...]) -> int:
        """The number of a shape, given one now if it is new."""
        number = self.numbers.get((point, keys))
        if number is None:
            number = self.numbers[point, keys] = len(self.shapes)
            self.shapes.append(Shape(point, keys, _order(keys)))
            self._string(point.value)
            for key in keys:
                if key not in self.keys:
                    self._string(key.kind.value)
                    if key.sequence is not None:
                        self._string(key.sequence)
                    self._string(key.field)
                    self.keys[key] = len(self.keys)
        return number

    def _string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def news(self) -> tables.Names | None:
        """What came in since the last call, None if nothing did."""
        now = (len(self.strings), len(self.keys), len(self.shapes))
        if now == self._told:
            return None
        strings, keys = list(self.strings)[self._told[0] :], list(self.keys)[self._told[1] :]
        shapes, self._told = self.shapes[self._told[2] :], now
        parts = [(*self._text(key), -1 if key.layer is None else key.layer) for key in keys]
        return tables.Names(
            strings=tuple(map(text_bytes, strings)),
            keys=pack(np.asarray(parts, np.int64).reshape(-1, 4).T),
            points=pack(np.asarray([self.strings[shape.point] for shape in shapes], np.int64)),
            sizes=pack(np.asarray([len(shape.keys) for shape in shapes], np.int64)),
            shape_keys=pack_steps(np.asarray([self.keys[k] for s in shapes for k in s.keys], np.int64)),
        )

    def _text(self, key: Key) -> tuple[int, int, int]:
        sequence = -1 if key.sequence is None else self.strings[key.sequence]
        return self.strings[key.kind], sequence, self.strings[key.field]

    def learn(self, table: tables.Names) -> None:
        """Adds what a frame says. RecordError for kinds and points that this version does not know."""
        for data in table.strings:
            self._string(bytes_text(data))
        strings = list(self.strings)
        for kind, sequence, name, layer in unpack(table.keys).reshape(4, -1).T.tolist():
            label = None if sequence < 0 else strings[sequence]
            key = Key(_member(Kind, strings[kind]), label, strings[name], None if layer < 0 else layer)
            self.keys[key] = len(self.keys)
        keys = list(self.keys)
        sizes = unpack(table.sizes).tolist()
        flat = unpack_steps(table.shape_keys, sum(sizes)).tolist()
        start = 0
        for point, size in zip(unpack(table.points).tolist(), sizes, strict=True):
            own = tuple(keys[number] for number in flat[start : start + size])
            self.shape(_member(Point, strings[point]), own)
            start += size


def _member(kinds: type[M], value: str) -> M:
    try:
        return kinds(value)
    except ValueError:
        raise RecordError(
            f"holds values of kind {value!r}, which this shadow does not know: use the commit that wrote it"
        ) from None
