"""Events on their way between processes: of each point only what is not as it was at that point the last time.

What is sent again is decided by the sending side alone, from the values that it has seen: the receiving side
rebuilds every event whole, in the order in which its values came about. The first event of a point and the end of a
batch are sent in full.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import compress, count
from operator import is_not
from typing import Any

from shadow.observation import Event, Key, Observed, Pages, Point, Rows, Violation


@dataclass(frozen=True)
class Layout:
    """Which keys an event has, in order: numbers in the order in which keys were `fresh`, first met, in this run."""

    fresh: tuple[Key, ...]
    numbers: array[int]


@dataclass(frozen=True)
class Delta:
    """An event. `layout`: None where the keys are those of the last event of this point.

    `places`: where in the event the `values` stand; None: they are all values of the event.
    """

    point: Point
    step: int
    layout: Layout | None
    places: array[int] | None
    values: tuple[Observed, ...]
    violations: tuple[Violation, ...]
    checked: Mapping[str, int]
    batch: int
    fired: int | None


class _Never:
    """What a key had before it was there: no value is this."""


_PLAIN = frozenset((int, str, bool, bytes))  # equal only to what is the same in every respect, within a type


def unchanged(before: Any, now: Any) -> bool:
    """Whether the two are the same to every bit; False where telling would cost more than sending it again."""
    sort = type(now)
    if sort is not type(before):
        return False
    if sort in _PLAIN or sort is Rows:
        return bool(before == now)
    if sort is Pages:
        return bool(before.ids == now.ids and before.pool == now.pool and before.owned is now.owned)
    return before is now


def _changed(before: list[Any], now: list[Any]) -> Iterator[int]:
    for at in compress(count(), map(is_not, before, now)):
        old, new = before[at], now[at]
        if type(new) is int and type(old) is int:  # nearly all of them
            if new != old:
                yield at
        elif not unchanged(old, new):
            yield at


class Encoder:
    """The end that sends. Values must not change after they were sent: observations are snapshots."""

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}
        self._last: dict[Point, dict[Key, Observed]] = {}

    def encode(self, event: Event) -> Delta:
        now, before = dict(event.values), self._last.get(event.point)
        self._last[event.point] = now
        layout = self._layout(now, before)
        places: array[int] | None = None
        values = list(now.values())
        if before is not None and event.point is not Point.END:
            old = list(before.values()) if layout is None else [before.get(key, _Never) for key in now]
            places = array("I", _changed(old, values))
            values = [values[at] for at in places]
        said = event.violations, event.checked, event.batch, event.fired
        return Delta(event.point, event.step, layout, places, tuple(values), *said)

    def _layout(self, now: dict[Key, Observed], before: dict[Key, Observed] | None) -> Layout | None:
        if before is not None and list(before) == list(now):
            return None
        fresh = [key for key in now if key not in self._numbers]
        for key in fresh:
            self._numbers[key] = len(self._numbers)
        return Layout(tuple(fresh), array("I", map(self._numbers.__getitem__, now)))


class Decoder:
    """The end that receives: one for each sender, given everything that it sends, in order.

    A value that was not sent again is the very object of the event before.
    """

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._last: dict[Point, dict[Key, Observed]] = {}
        self._order: dict[Point, list[Key]] = {}

    def decode(self, delta: Delta) -> Event:
        before = self._last.get(delta.point, {})
        if delta.layout is not None:
            self._keys += delta.layout.fresh
            self._order[delta.point] = [self._keys[number] for number in delta.layout.numbers]
        order = self._order[delta.point]
        if delta.places is None:
            values = dict(zip(order, delta.values, strict=True))
        else:
            sent = zip((order[at] for at in delta.places), delta.values, strict=True)
            values = before | dict(sent)
            if delta.layout is not None:
                values = {key: values[key] for key in order}
        self._last[delta.point] = values
        said = delta.violations, delta.checked, delta.batch, delta.fired
        return Event(delta.point, delta.step, values, *said)
