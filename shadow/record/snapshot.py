"""The exact inputs of a boundary's decision: taken from a live worker as keys of an event, and read back.

A table (one mapping of fields a sequence) becomes one key a sequence and field, so that its integers are
columns; everything else is one tree a parameter. Sequences carry their label in place of their uuid.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from types import SimpleNamespace
from typing import Any

from shadow.observation import Key, Kind, Observed, Point
from shadow.plain import Plain, Record, plain

METHOD = "_compute_boundary_decisions"
DECISIONS = Key(Kind.BOUNDARY, None, "decisions")
_INPUT = "given."
_SEQUENCE = "get_sequence()"  # the table of what it shows of each sequence
_SCALARS = (int, float, str, type(None))


class BoundaryInputs:
    """A probe (see shadow.observe.probe) of what `_compute_boundary_decisions` was given."""

    kind = Kind.BOUNDARY
    points = frozenset((Point.DECISIONS,))
    structural = True

    def __init__(self) -> None:
        self._values: dict[Key, Observed] = {}

    def missing(self, subject: Any) -> str | None:
        return None

    def install(self, subject: Any) -> None:
        original = getattr(subject.worker, METHOD)
        parameters = inspect.signature(original)

        @functools.wraps(original)  # who looks at the signature next must see the method's
        def hook(*args: Any, **kwargs: Any) -> Any:
            entries = subject.names.refresh()
            arguments = parameters.bind(*args, **kwargs).arguments
            self._values = input_values(arguments, entries, subject.names.by_uuid)
            return original(*args, **kwargs)

        setattr(subject.worker, METHOD, hook)

    def values(self, subject: Any, point: Point) -> dict[Key, Observed]:
        return self._values


def input_values(
    arguments: Mapping[str, Any], entries: Sequence[Any], labels: Mapping[str, str]
) -> dict[Key, Observed]:
    """Keys and values of the arguments, by parameter; then of the sequences that some table names."""
    values: dict[Key, Observed] = {}
    named: dict[str, None] = {}
    for name, value in arguments.items():
        if not _is_table(value):
            values[Key(Kind.BOUNDARY, None, _INPUT + name)] = _exact(value, labels)
            continue
        order = tuple(labels.get(uuid, uuid) for uuid in value)
        values[Key(Kind.BOUNDARY, None, _INPUT + name)] = Record("table", (("order", order),))
        named.update(dict.fromkeys(value))
        for label, fields in zip(order, value.values(), strict=True):
            for field, item in fields.items():
                values[Key(Kind.BOUNDARY, label, f"{_INPUT}{name}.{field}")] = _exact(item, labels)
    by_uuid = {getattr(entry, "uuid", None): entry for entry in entries}
    shown = [uuid for uuid in named if uuid in by_uuid]
    values[Key(Kind.BOUNDARY, None, _INPUT + _SEQUENCE)] = Record(
        "table", (("order", tuple(labels.get(uuid, uuid) for uuid in shown)),)
    )
    for uuid in shown:
        for field, item in _scalars(by_uuid[uuid]):
            key = Key(Kind.BOUNDARY, labels.get(uuid, uuid), f"{_INPUT}{_SEQUENCE}.{field}")
            values[key] = labels.get(item, item) if isinstance(item, str) else item
    return values


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(key, str) and isinstance(item, Mapping) and all(isinstance(f, str) for f in item)
        for key, item in value.items()
    )


def _scalars(entry: Any) -> Iterator[tuple[str, Any]]:
    slots = [name for cls in type(entry).__mro__ for name in getattr(cls, "__slots__", ())]
    for name in sorted({*slots, *getattr(entry, "__dict__", {})}):
        value = getattr(entry, name, None)
        if isinstance(value, Enum) and isinstance(value, int):
            yield name, int(value)
        elif type(value) in (*_SCALARS, bool):
            yield name, value


def _exact(value: Any, labels: Mapping[str, str]) -> Plain:
    """As `plain`, with the order and the keys of mappings kept, and enums that are integers as those."""
    if isinstance(value, Mapping):
        keys = tuple(_exact(key, labels) for key in value)
        return Record("dict", (("keys", keys), ("values", tuple(_exact(v, labels) for v in value.values()))))
    if isinstance(value, list | tuple):
        return tuple(_exact(item, labels) for item in value)
    if isinstance(value, Enum) and isinstance(value, int):
        return int(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return Record(
            type(value).__name__, tuple((f.name, _exact(getattr(value, f.name), labels)) for f in fields)
        )
    return plain(value, labels)


def is_whole_input(key: Key) -> bool:
    """Whether the key is an observer's own tree of one whole input, which the columns here say again."""
    return key.kind is Kind.BOUNDARY and key.field.startswith("inputs.")


Cell = Callable[[int], Any]
"""The value of the event's row (place in its shape)."""


class _Entry:
    """What `get_sequence(label)` of a replayed planner sees: the scalar fields of the recorded sequence."""

    __slots__ = ("_cell", "_places")

    def __init__(self, places: Mapping[str, int], cell: Cell) -> None:
        self._places, self._cell = places, cell

    def __getattr__(self, name: str) -> Any:
        try:
            return self._cell(self._places[name])
        except KeyError:
            raise AttributeError(
                f"the record has no field {name!r} of a sequence", name=name, obj=self
            ) from None


class Snapshot:
    """One boundary's inputs: `arguments` by parameter name, `get_sequence` as the worker's batch has it."""

    def __init__(self, arguments: dict[str, Any], entries: dict[str, _Entry]) -> None:
        self.arguments, self._entries = arguments, entries

    def get_sequence(self, label: str) -> Any:
        """KeyError for a sequence that the decision was told nothing about."""
        return self._entries[label]

    @property
    def sequences(self) -> int:
        """How many sequences this boundary decides about."""
        return len(self._entries)


class SnapshotLayout:
    """Where in a shape the inputs are; worked out once for all events of the shape.

    `types` are the classes by name that dataclass arguments are made of again; those without one become plain
    namespaces.
    """

    def __init__(self, keys: Sequence[Key], types: Mapping[str, Callable[..., Any]]) -> None:
        self._types = types
        self._trees: list[tuple[str, int]] = []
        self._tables: dict[str, dict[str, tuple[list[str], list[int]]]] = {}
        for place, key in enumerate(keys):
            if key.kind is not Kind.BOUNDARY or not key.field.startswith(_INPUT):
                continue
            name, _, field = key.field.removeprefix(_INPUT).partition(".")
            if key.sequence is None:
                self._trees.append((name, place))
            else:
                names, places = self._tables.setdefault(name, {}).setdefault(key.sequence, ([], []))
                names.append(field)
                places.append(place)
        self._fields = {
            label: dict(zip(names, places, strict=True))
            for label, (names, places) in self._tables.get(_SEQUENCE, {}).items()
        }

    @property
    def is_complete(self) -> bool:
        """Whether the events of this shape hold inputs at all."""
        return bool(self._trees)

    def read(self, cells: Sequence[Any]) -> Snapshot:
        """`cells`: the event's values in the order of the shape."""
        arguments: dict[str, Any] = {}
        for name, place in self._trees:
            tree: Any = cells[place]
            if type(tree) is Record and tree.name == "table":
                if name != _SEQUENCE:
                    order: Any = dict(tree.fields)["order"]
                    table = self._tables.get(name, {})
                    arguments[name] = {label: self._row(table.get(label), cells) for label in order}
            else:
                arguments[name] = self._revived(tree)
        cell = cells.__getitem__
        return Snapshot(arguments, {label: _Entry(fields, cell) for label, fields in self._fields.items()})

    @staticmethod
    def _row(row: tuple[list[str], list[int]] | None, cells: Sequence[Any]) -> dict[str, Any]:
        if row is None:
            return {}
        names, places = row
        return dict(zip(names, cells[places[0] : places[-1] + 1], strict=True))

    def _revived(self, tree: Any) -> Any:
        if isinstance(tree, tuple):
            return [self._revived(item) for item in tree]
        if not isinstance(tree, Record):
            return tree
        fields = dict(tree.fields)
        if tree.name == "dict":
            keys, values = (self._revived(part) for part in fields.values())
            return dict(zip(keys, values, strict=True))
        revived = {name: self._revived(item) for name, item in fields.items()}
        return self._types.get(tree.name, SimpleNamespace)(**revived)
