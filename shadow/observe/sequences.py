"""Every field of every sequence."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from shadow.observation import Kind, Point
from shadow.observe.fields import Fields
from shadow.observe.probe import PlainProbe, Subject, Values


@lru_cache(maxsize=64)
def _slots(cls: type) -> tuple[str, ...]:
    return tuple(sorted(name for base in cls.__mro__ for name in getattr(base, "__slots__", ())))


def _field_names(entry: Any) -> tuple[str, ...]:
    slots = _slots(type(entry))  # type: ignore[arg-type]  # mypy takes a class of Any for unhashable
    more = getattr(entry, "__dict__", None)
    return tuple(sorted({*slots, *more})) if more else slots


class Sequences(PlainProbe):
    kind = Kind.SEQUENCE
    points = frozenset((Point.PREFILL, Point.DECODE, Point.BOUNDARY, Point.END))
    structural = True

    def __init__(self) -> None:
        self._fields = Fields(Kind.SEQUENCE)
        self._named: object = None

    def install(self, subject: Subject) -> None:
        self._fields.forget()

    def values(self, subject: Subject, point: Point) -> Values:
        names = subject.names
        if names.by_uuid is not self._named:
            self._fields.forget()
            self._named = names.by_uuid
        values: Values = {}
        for entry, label in zip(subject.entries, subject.labels(), strict=True):
            values.update(self._fields.of(entry, label, _field_names(entry), names.by_uuid))
        if point is Point.END:  # nothing is kept alive beyond its batch
            self._fields.forget()
        return values
