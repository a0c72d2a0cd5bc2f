"""Streams of events: drawn at random by hypothesis, or those of a steady decode."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shadow.observation import (
    Call,
    Calls,
    Digests,
    Event,
    Key,
    Kind,
    Pages,
    Point,
    Row,
    Rows,
    Severity,
    Violation,
)
from shadow.plain import Opaque, Record
from shadow.record.tables import Header
from shadow.record.values import tree_bytes
from shadow.record.writer import RecordWriter

NAMES = st.sampled_from(["a", "b", "kv_len", "owned_pages", "b0-1", "é", "\ud800"]) | st.text(max_size=3)
INTEGERS = (
    st.integers(-(1 << 70), 1 << 70) | st.integers(-3, 3) | st.sampled_from([-(1 << 63), (1 << 63) - 1])
)
SCALARS = st.none() | st.booleans() | INTEGERS | st.floats() | NAMES | st.binary(max_size=3)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(st.tuples(NAMES, inner), max_size=3).map(tuple)
    return st.lists(inner, max_size=4).map(tuple) | st.builds(Record, NAMES, fields)


LISTS = st.lists(st.integers(-5, 1 << 40), max_size=9).map(tuple)
PLAIN = st.recursive(SCALARS | st.builds(Opaque, NAMES), _containers, max_leaves=6) | LISTS
ROWS = st.builds(Row, hnp.arrays(np.float32, st.integers(0, 4)))
DIGESTS = st.builds(
    Digests,
    hnp.arrays(np.int64, st.tuples(st.integers(1, 2), st.integers(0, 3)), elements=st.integers(-2, 2)),
    st.sampled_from(["page", "position"]),
    st.integers(1, 16),
    st.integers(0, 9),
)
PAGES = st.builds(Pages, NAMES, LISTS, st.booleans())
LABELS = st.builds(Rows, st.lists(NAMES, max_size=3).map(tuple))
CALLS = st.builds(Call, NAMES, st.lists(st.tuples(NAMES, st.none() | INTEGERS), max_size=3).map(tuple), NAMES)
OBSERVED = PLAIN | ROWS | DIGESTS | PAGES | LABELS | st.builds(Calls, st.lists(CALLS, max_size=2).map(tuple))
VIOLATIONS = st.builds(Violation, NAMES, NAMES, st.none() | NAMES, st.none(), st.sampled_from(Severity))
# what the comparison itself says is no key of an event
KINDS = st.sampled_from([kind for kind in Kind if kind not in (Kind.SCHEDULE, Kind.OUTCOME)])
KEYS = st.builds(Key, KINDS, st.none() | NAMES, NAMES, st.none() | st.integers(0, 2))
VALUES = st.dictionaries(KEYS, OBSERVED, max_size=5)
EXTRAS = st.just({}) | st.fixed_dictionaries(
    {
        "violations": st.lists(VIOLATIONS, max_size=2).map(tuple),
        "checked": st.dictionaries(NAMES, st.integers(0, 9), max_size=2),
        "fired": st.none() | st.integers(0, 9),
    }
)


@st.composite
def events(draw: st.DrawFn) -> list[Event]:
    """Events of a few shapes, so that columns are long; now and then a value of another type in a column."""
    templates = draw(st.lists(VALUES, min_size=1, max_size=3))
    stream = []
    for _ in range(draw(st.integers(0, 12))):
        values = dict(draw(st.sampled_from(templates)))
        for key in draw(st.lists(st.sampled_from(list(values)), max_size=2)) if values else ():
            values[key] = draw(OBSERVED | INTEGERS)
        more = draw(EXTRAS)
        stream.append(Event(draw(st.sampled_from(Point)), draw(st.integers(0, 999)), values, **more))
    return stream


def same(one: Any, other: Any) -> bool:
    """Whether two observed values, events or sequences of them are equal bit for bit, types included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if isinstance(one, float):
        return np.float64(one).tobytes() == np.float64(other).tobytes()
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    return bool(one == other)


def header(**changes: Any) -> Header:
    defaults: dict[str, Any] = {
        "chunk_events": 4,
        "content": (),
        "gpus_per_node": 8,
        "world_size": 1,
        "settings": tree_bytes({"page_size": 16}),
        "facts": (),
    }
    return Header(**{**defaults, **changes})


def written(path: Path, stream: Iterable[Event], outcome: str | None = "done", **changes: Any) -> Path:
    writer = RecordWriter(path, header(**changes))
    writer.requests(({"id": "a"},))
    for event in stream:
        writer.add(event)
    if outcome is None:
        writer.close()
    else:
        writer.finish(outcome)
    return path
