"""Integers of the attention plan: what each row reads, and where it writes, in terms of its own positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from shadow.observation import Kind, Point
from shadow.observe.forward import Forward
from shadow.observe.probe import Subject, Values, key, keys


class RowPlan(NamedTuple):
    """One row. `pages`: those read, in order; `covered`: positions attended to that lie where their page says;
    `page`, `offset`: of the slot written."""

    kv_len: int
    pages: tuple[int, ...]
    covered: int
    page: int
    offset: int


def rows_of(plan: Any, page_size: int) -> list[RowPlan]:
    """The rows of a plan with `token_indices` [B, L], `kv_len` [B], `mask` [B, L] or None, `write_indices` [B]."""
    slots, kv_len = plan.token_indices.cpu().numpy(), plan.kv_len.cpu().numpy()
    writes = plan.write_indices.cpu().numpy()
    width = slots.shape[1]
    position = np.arange(width)
    first = slots[:, position // page_size * page_size]  # the slot that the row's page begins with
    placed = (slots == first + position % page_size) & (first % page_size == 0)
    if plan.mask is not None:
        placed &= plan.mask.cpu().numpy()
    lengths: list[int] = kv_len.tolist()
    pages = [
        tuple(row[: max(0, -(-length // page_size))])
        for row, length in zip((slots[:, ::page_size] // page_size).tolist(), lengths, strict=False)
    ]
    covered, at, offset = placed.sum(axis=1), writes // page_size, writes % page_size
    columns = lengths, pages, covered.tolist(), at.tolist(), offset.tolist()
    return list(map(RowPlan._make, zip(*columns, strict=False)))


def planned(subject: Subject) -> Iterator[tuple[str, list[RowPlan]]]:
    """(name of the plan, its rows, padded ones last) of the forward in hand, where the backend lets it be seen."""
    last = subject.forward.last
    pools = dict(subject.pools())
    if last is None or not pools:
        return
    size = next(iter(pools.values())).config.page_size
    for name, plan in (("plan", last.plan), ("plan_aux", last.plan_aux)):
        shared = name == "plan_aux" and plan is last.plan  # a replay reads both pools through one plan
        if plan is not None and not shared and hasattr(plan, "token_indices"):
            yield name, subject.once(name, lambda plan=plan: rows_of(plan, size))  # type: ignore[misc]


_FIELDS = ("kv_len", "pages", "covered", "write_page", "write_offset")  # of a RowPlan, in its order


@lru_cache(maxsize=8)
def _fields(plan: str) -> tuple[str, ...]:
    return tuple(f"{plan}.{field}" for field in _FIELDS)


class Plans:
    """The plan of the forward, and of a replay the static buffers that it reads."""

    kind = Kind.PLAN
    points = frozenset((Point.DECODE,))
    structural = True

    def missing(self, subject: Subject) -> str | None:
        return subject.forward.missing

    def install(self, subject: Subject) -> None:
        subject.forward.install()

    def values(self, subject: Subject, point: Point) -> Values:
        values: Values = {}
        labels = subject.labels()
        for name, rows in planned(subject):
            values[key(Kind.PLAN, None, f"{name}.padded")] = _padding(rows[len(labels) :])
            places = keys(Kind.PLAN, labels[: len(rows)], _fields(name))
            values.update(zip(places, chain.from_iterable(rows[: len(labels)]), strict=True))
            for at in range(0, len(places), len(_FIELDS)):
                read, written = places[at + 1], places[at + 3]
                row = rows[at // len(_FIELDS)]
                values[read] = subject.pages(read, "primary", row.pages)
                values[written] = subject.pages(written, "primary", (row.page,))
        if subject.forward.last is not None and subject.forward.last.buffers is not None:
            values.update(_static(subject, subject.forward.last, labels))
        return values


def _padding(rows: list[RowPlan]) -> tuple[str, ...]:
    """What is distinct about padded rows: on sides with other buckets there are more or fewer of them."""
    return tuple(sorted({f"kv_len {row.kv_len}, offset {row.offset}" for row in rows}))


def _static(subject: Subject, forward: Forward, labels: tuple[str, ...]) -> Values:
    tensors: Mapping[str, Any] = {**forward.buffers.inputs, **forward.buffers.in_place}
    sizes = [pool.config.page_size for _, pool in subject.pools()]
    lengths = tensors["cache_seqlens"].tolist() if "cache_seqlens" in tensors else []
    values: Values = {}
    for name, tensor in tensors.items():
        field = f"static.{name}"
        if tensor.dim() == 2 and sizes:
            live = [-(-max(0, length) // sizes[0]) for length in lengths[: len(labels)]]
            table = tensor[: len(live), : max(live, default=0)].tolist()

            def pages(field: str = field, table: Any = table, live: list[int] = live) -> Values:
                rows = zip(keys(Kind.PLAN, labels, (field,)), table, live, strict=False)
                return {at: subject.pages(at, "primary", tuple(row[:end])) for at, row, end in rows}

            values.update(subject.again(field, (labels, table, live), pages))
        elif tensor.dim() == 1 and len(tensor) == forward.bucket and name in forward.buffers.padding:
            numbers = tensor.tolist()
            by_row = zip(keys(Kind.PLAN, labels, (field,)), numbers, strict=False)
            if name == "state_slots":
                values.update((at, subject.pages(at, name, (number,))) for at, number in by_row)
            else:
                values.update(by_row)
            values[key(Kind.PLAN, None, f"{field}.padded")] = tuple(sorted(set(numbers[len(labels) :])))
        elif name not in forward.buffers.padding:  # not by row: how many rows are valid, and the like
            values[key(Kind.PLAN, None, field)] = tuple(tensor.flatten().tolist())
    return values
