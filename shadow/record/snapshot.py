"""The exact inputs of a boundary's decision: taken from a live worker as keys of an event, and read back.

A table (one mapping of the same fields for each of some sequences) becomes one key a field, whose value has one
item a sequence: whoever decodes next, the keys stay the same. Everything else is one tree a parameter.
Sequences carry their label in place of their uuid.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from types import SimpleNamespace
from typing import Any

from shadow.diff import Mismatch
from shadow.observation import Event, Key, Kind, Observed, Point
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
        if _is_table(value):
            values.update(_table(name, value, labels))
            named.update(dict.fromkeys(value))
        else:
            values[_key(name)] = exact(value, labels)
    by_uuid = {getattr(entry, "uuid", None): entry for entry in entries}
    shown = {uuid: dict(_scalars(by_uuid[uuid])) for uuid in named if uuid in by_uuid}
    values.update(_table(_SEQUENCE, shown if _is_table(shown) else {}, labels))
    return values


def _key(name: str, field: str | None = None) -> Key:
    return Key(Kind.BOUNDARY, None, f"{_INPUT}{name}" if field is None else f"{_INPUT}{name}.{field}")


def _is_table(value: Any) -> bool:
    """Whether it is a mapping by uuid of mappings with the same fields in the same order."""
    if not isinstance(value, Mapping):
        return False
    rows = [tuple(row) if isinstance(row, Mapping) else None for row in value.values()]
    known = all(isinstance(uuid, str) for uuid in value)
    return known and all(row is not None and row == rows[0] and all(map(_is_text, row)) for row in rows)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _table(
    name: str, rows: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str]
) -> Iterator[tuple[Key, Observed]]:
    fields = tuple(next(iter(rows.values()), ()))
    order = tuple(labels.get(uuid, uuid) for uuid in rows)
    yield _key(name), Record("table", (("order", order), ("fields", fields)))
    for field in fields:
        yield _key(name, field), tuple(exact(row[field], labels) for row in rows.values())


def _scalars(entry: Any) -> Iterator[tuple[str, Any]]:
    slots = [name for cls in type(entry).__mro__ for name in getattr(cls, "__slots__", ())]
    for name in sorted({*slots, *getattr(entry, "__dict__", {})}):
        value = getattr(entry, name, None)
        if isinstance(value, Enum) and isinstance(value, int):
            yield name, int(value)
        elif type(value) in (*_SCALARS, bool):
            yield name, value


def exact(value: Any, labels: Mapping[str, str]) -> Plain:
    """As `plain`, with the order and the keys of mappings kept, and enums that are integers as those."""
    if isinstance(value, Mapping):
        keys = tuple(exact(key, labels) for key in value)
        return Record("dict", (("keys", keys), ("values", tuple(exact(v, labels) for v in value.values()))))
    if isinstance(value, list | tuple):
        return tuple(exact(item, labels) for item in value)
    if isinstance(value, Enum) and isinstance(value, int):
        return int(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return Record(
            type(value).__name__, tuple((f.name, exact(getattr(value, f.name), labels)) for f in fields)
        )
    return plain(value, labels)


def is_whole_input(key: Key) -> bool:
    """Whether the key is an observer's own tree of one whole input, which the columns here say again."""
    return key.kind is Kind.BOUNDARY and key.field.startswith("inputs.")


class _Entry:
    """What `get_sequence(label)` of a replayed planner sees: the scalar fields of the recorded sequence."""

    __slots__ = ("_columns", "_index")

    def __init__(self, columns: Mapping[str, Sequence[Any]], index: int) -> None:
        self._columns, self._index = columns, index

    def __getattr__(self, name: str) -> Any:
        try:
            return self._columns[name][self._index]
        except KeyError:
            raise AttributeError(
                f"the record has no field {name!r} of a sequence", name=name, obj=self
            ) from None


class Snapshot:
    """One boundary's inputs: `arguments` by parameter name, `get_sequence` as the worker's batch has it.

    `sequences`: how many sequences there are to decide about.
    """

    def __init__(self, arguments: dict[str, Any], entries: Mapping[str, Any], sequences: int) -> None:
        self.arguments, self._entries, self.sequences = arguments, entries, sequences

    def get_sequence(self, label: str) -> Any:
        """KeyError for a sequence that the decision was told nothing about."""
        return self._entries[label]


def read_snapshot(values: Mapping[str, Any], types: Mapping[str, Callable[..., Any]]) -> Snapshot:
    """The inputs among an event's values of kind BOUNDARY by field. ValueError where they do not fit together.

    `types` are the classes by name that dataclass arguments are made of again; those without one become plain
    namespaces.
    """
    arguments: dict[str, Any] = {}
    entries: dict[str, Any] = {}
    named: set[str] = set()
    for field, tree in values.items():
        name = field.removeprefix(_INPUT)
        if name == field or (type(tree) is not Record and "." in name):
            continue
        if type(tree) is not Record or tree.name != "table":
            arguments[name] = revived(tree, types)
            continue
        layout: dict[str, Any] = dict(tree.fields)
        order, fields = layout["order"], layout["fields"]
        named.update(order)
        columns = [values[f"{field}.{column}"] for column in fields]
        if name == _SEQUENCE:
            by_name = dict(zip(fields, columns, strict=True))
            entries = {label: _Entry(by_name, index) for index, label in enumerate(order)}
        else:
            rows = zip(order, zip(*columns, strict=True), strict=True)
            arguments[name] = {label: dict(zip(fields, row, strict=False)) for label, row in rows}
    return Snapshot(arguments, entries, len(named))


def with_sequence(legacy: Event, candidate: Event, mismatch: Mismatch) -> Mismatch:
    """The mismatch with its sequence, where it is in one item of a table's column or of a decision's list."""
    if mismatch.kind is not Kind.BOUNDARY or mismatch.sequence is not None:
        return mismatch
    for event in (legacy, candidate):
        label = _sequence_at(event.values, mismatch.field)
        if label is not None:
            return dataclasses.replace(mismatch, sequence=label)
    return mismatch


def _sequence_at(values: Mapping[Key, Observed], path: str) -> str | None:
    place, _, index = path.partition("[")
    stem, _, name = place.rpartition(".")
    owner: Any = values.get(Key(Kind.BOUNDARY, None, stem))
    if type(owner) is not Record:
        return None
    fields = dict(owner.fields)
    if stem == DECISIONS.field and name in fields:
        return item_sequence(fields, name, path)
    if owner.name == "table":
        return item_sequence({"order": fields["order"]}, "order", f"[{index}")
    return None


def names_sequences(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, str) for item in value)


def item_sequence(fields: Mapping[str, Any], name: str, path: str) -> str | None:
    """The sequence that an item belongs to: `x_pages[2]` is of the third of `x_uuids`."""
    index = path.rpartition("[")[2].removesuffix("]")
    own = fields[name]
    labels = own if names_sequences(own) else fields.get(name.rpartition("_")[0] + "_uuids")
    if not (
        path.endswith("]") and index.isdigit() and isinstance(labels, tuple) and int(index) < len(labels)
    ):
        return None
    return str(labels[int(index)])


def revived(tree: Any, types: Mapping[str, Callable[..., Any]]) -> Any:
    """What `exact` took apart, with lists for tuples; classes without a type become plain namespaces."""
    if isinstance(tree, tuple):
        return [revived(item, types) for item in tree]
    if not isinstance(tree, Record):
        return tree
    fields = dict(tree.fields)
    if tree.name == "dict":
        keys, values = (revived(part, types) for part in fields.values())
        return dict(zip(keys, values, strict=True))
    items = {name: revived(item, types) for name, item in fields.items()}
    return types.get(tree.name, SimpleNamespace)(**items)
