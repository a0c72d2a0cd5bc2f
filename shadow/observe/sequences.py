"""Every field of every sequence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from shadow.observation import Key, Kind, Point
from shadow.observe.probe import PlainProbe, Subject, Values
from shadow.plain import Plain, plain


def _field_names(entry: Any) -> list[str]:
    slots = [name for cls in type(entry).__mro__ for name in getattr(cls, "__slots__", ())]
    return sorted({*slots, *getattr(entry, "__dict__", {})})


def _fields(entry: Any, names: Mapping[str, str]) -> Iterator[tuple[str, Plain]]:
    for name in _field_names(entry):
        value = getattr(entry, name, None)
        if name == "decoded_tokens" and isinstance(value, torch.Tensor):
            value = value[..., : entry.decoded_length]  # what lies behind is uninitialised memory
        yield name, plain(value, names)


class Sequences(PlainProbe):
    kind = Kind.SEQUENCE
    points = frozenset((Point.PREFILL, Point.DECODE, Point.BOUNDARY, Point.END))
    structural = True

    def values(self, subject: Subject, point: Point) -> Values:
        names = subject.names
        return {
            Key(Kind.SEQUENCE, names.label(entry), name): value
            for entry in subject.entries
            for name, value in _fields(entry, names.by_uuid)
        }
