"""What a planner of the step policy was asked, and its plan: as keys of an event, and read back.

An input that is a row of frozen values of one class becomes one key a field, whose value has one item a row: the keys
stay the same from step to step. Everything else is one tree an input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from shadow.observation import Key, Kind, Observed
from shadow.plain import Record, plain
from shadow.record.snapshot import exact, revived

PLANNER, PLAN = Key(Kind.POLICY, None, "planner"), Key(Kind.POLICY, None, "plan")
_ROWS = "rows"


def question_values(planner: str, inputs: Sequence[object], plan: object) -> dict[Key, Observed]:
    """`planner`: its dotted name in the tree."""
    values: dict[Key, Observed] = {PLANNER: planner, PLAN: plain(plan)}
    for place, value in enumerate(inputs):
        values.update(_input(place, value))
    return values


def _input(place: int, value: Any) -> Iterator[tuple[Key, Observed]]:
    kinds = set(map(type, value)) if isinstance(value, tuple) else set()
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None or not dataclasses.is_dataclass(kind):
        yield _key(place), exact(value, {})
        return
    names = tuple(field.name for field in dataclasses.fields(kind))
    yield _key(place), Record(_ROWS, (("class", kind.__name__), ("fields", names)))
    for name in names:
        yield _key(place, name), tuple(exact(getattr(row, name), {}) for row in value)


def _key(place: int, field: str | None = None) -> Key:
    return Key(Kind.POLICY, None, f"given.{place}" if field is None else f"given.{place}.{field}")


def read_inputs(values: Mapping[str, Any], types: Mapping[str, Callable[..., Any]]) -> list[Any]:
    """The inputs among an event's values by field, rows made of the classes in `types` again."""
    inputs: list[Any] = []
    while (key := _key(len(inputs)).field) in values:
        tree = values[key]
        if not (isinstance(tree, Record) and tree.name == _ROWS):
            inputs.append(revived(tree, types))
            continue
        layout: dict[str, Any] = dict(tree.fields)
        columns = [[revived(item, types) for item in values[f"{key}.{name}"]] for name in layout["fields"]]
        rows = zip(*columns, strict=True)
        make = types[layout["class"]]
        inputs.append(tuple(make(**dict(zip(layout["fields"], row, strict=True))) for row in rows))
    return inputs
