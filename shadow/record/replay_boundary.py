"""Boundary decisions replayed: planned again from the recorded inputs, compared with those recorded."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from shadow.diff import Mismatch, Nature, diff_plain
from shadow.observation import Kind, Point
from shadow.plain import Plain, Record, plain
from shadow.record.format import RecordError
from shadow.record.names import Shape
from shadow.record.planners import BoundaryPlanner
from shadow.record.snapshot import DECISIONS, item_sequence, names_sequences, read_snapshot
from shadow.record.unpack import Block, Chunk

_FIELD = DECISIONS.field


@dataclasses.dataclass(frozen=True)
class Raised:
    """The planner ended in an exception instead of a decision."""

    what: str


class BoundaryReplay:
    """Replays the decision events of chunk after chunk through one planner."""

    kind, point = Kind.BOUNDARY, Point.DECISIONS

    def __init__(self, planner: BoundaryPlanner, types: Mapping[str, Callable[..., Any]]) -> None:
        self._planner, self._types = planner, types
        self._fields: dict[Shape, dict[str, int]] = {}

    def replay(self, chunk: Chunk) -> Iterator[tuple[int, int, tuple[Mismatch, ...]]]:
        """(place in the chunk, sequences decided about, what differs) for each decision with its inputs."""
        for block in chunk.blocks:
            if block.shape.point is not Point.DECISIONS:
                continue
            fields = self._fields.get(block.shape)
            if fields is None:
                fields = self._fields[block.shape] = {
                    key.field: place
                    for place, key in enumerate(block.shape.keys)
                    if key.kind is Kind.BOUNDARY and key.sequence is None
                }
            if _FIELD in fields and len(fields) > 1:
                yield from self._block(chunk, block, fields)

    def _block(
        self, chunk: Chunk, block: Block, fields: Mapping[str, int]
    ) -> Iterator[tuple[int, int, tuple[Mismatch, ...]]]:
        places = list(fields.values())
        classes = block.classes[places].tolist()
        columns = block.matrix[places].T.tolist()
        for column, index in zip(columns, block.events.tolist(), strict=True):
            cells = [chunk.cell(cls, number) for cls, number in zip(classes, column, strict=True)]
            values = dict(zip(fields, cells, strict=True))
            snapshot = read_snapshot(values, self._types)
            try:
                found: Any = self._planner(snapshot)
            except RecordError:
                raise
            except Exception as error:
                found = Raised(f"raised {type(error).__name__}: {error}")
            recorded: Any = values[_FIELD]
            if _equal(recorded, found):
                yield index, snapshot.sequences, ()
            else:
                step = int(chunk.steps[index])
                yield index, snapshot.sequences, tuple(differences(recorded, found, step))


def _equal(recorded: Any, found: Any) -> bool:
    """Whether the decision has just the recorded fields with the recorded values (quickly, else False)."""
    if not isinstance(recorded, Record):
        return False
    own = vars(found) if dataclasses.is_dataclass(found) and hasattr(found, "__dict__") else found
    if not isinstance(own, Mapping) or len(own) != len(recorded.fields):
        return False
    return all(
        name in own and type(own[name]) is type(value) and own[name] == value
        for name, value in recorded.fields
    )


def differences(recorded: Plain, replayed: Any, step: int) -> Iterator[Mismatch]:
    """Field by field; where a field lists sequences, which of them only one side names."""

    def at(field: str, nature: Nature, ours: str, theirs: str, sequence: str | None = None) -> Mismatch:
        return Mismatch(Kind.BOUNDARY, nature, Point.DECISIONS, step, sequence, None, field, ours, theirs)

    found = plain(replayed)
    if isinstance(replayed, Raised):
        yield at(_FIELD, Nature.TYPE, "decisions", replayed.what)
        return
    if not isinstance(recorded, Record) or not isinstance(found, Record):
        yield at(_FIELD, Nature.TYPE, repr(recorded), repr(found))
        return
    ours: dict[str, Any] = dict(recorded.fields)
    theirs: dict[str, Any] = dict(found.fields)
    for name, own in ours.items():
        other: Any = theirs.get(name)
        if names_sequences(own) and names_sequences(other) and set(own) != set(other):
            yield from _named_by_one(own, other, functools.partial(at, f"{_FIELD}.{name}"))
            continue
        partial = Record("", ((name, other),)) if name in theirs else Record("", ())
        leaves, _, _ = diff_plain(Record("", ((name, own),)), partial, _FIELD)
        for field, nature, mine, their in leaves:
            yield at(field, nature, mine, their, item_sequence(ours, name, field))
    for name in [name for name in theirs if name not in ours]:
        yield at(f"{_FIELD}.{name}", Nature.EXTRA, "(absent)", repr(theirs[name]))


def _named_by_one(
    ours: tuple[str, ...], theirs: tuple[str, ...], at: Callable[..., Mismatch]
) -> Iterator[Mismatch]:
    for label in ours:
        if label not in theirs:
            yield at(Nature.MISSING, "named", "(absent)", label)
    for label in theirs:
        if label not in ours:
            yield at(Nature.EXTRA, "(absent)", "named", label)
