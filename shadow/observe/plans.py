"""Integers of the attention plan: what each row reads, and where it writes, in terms of its own positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shadow.observation import Key, Kind, Observed, Pages, Point
from shadow.observe.forward import Forward
from shadow.observe.probe import Subject, Values, key


@dataclass(frozen=True)
class RowPlan:
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
    covered = placed.sum(axis=1)
    return [
        RowPlan(
            int(length),
            tuple((slots[row, : max(0, int(length)) : page_size] // page_size).tolist()),
            int(covered[row]),
            int(writes[row]) // page_size,
            int(writes[row]) % page_size,
        )
        for row, length in enumerate(kv_len)
    ]


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
        labels = [subject.names.label(entry) for entry in subject.entries]
        for name, rows in planned(subject):
            values[key(Kind.PLAN, None, f"{name}.padded")] = _padding(rows[len(labels) :])
            for label, row in zip(labels, rows, strict=False):
                values[key(Kind.PLAN, label, f"{name}.kv_len")] = row.kv_len
                values[key(Kind.PLAN, label, f"{name}.pages")] = Pages("primary", row.pages)
                values[key(Kind.PLAN, label, f"{name}.covered")] = row.covered
                values[key(Kind.PLAN, label, f"{name}.write_page")] = Pages("primary", (row.page,))
                values[key(Kind.PLAN, label, f"{name}.write_offset")] = row.offset
        if subject.forward.last is not None and subject.forward.last.buffers is not None:
            values.update(_static(subject, subject.forward.last, labels))
        return values


def _padding(rows: list[RowPlan]) -> tuple[str, ...]:
    """What is distinct about padded rows: on sides with other buckets there are more or fewer of them."""
    return tuple(sorted({f"kv_len {row.kv_len}, offset {row.offset}" for row in rows}))


def _static(subject: Subject, forward: Forward, labels: list[str]) -> Iterator[tuple[Key, Observed]]:
    tensors: Mapping[str, Any] = {**forward.buffers.inputs, **forward.buffers.in_place}
    sizes = [pool.config.page_size for _, pool in subject.pools()]
    lengths = tensors["cache_seqlens"].tolist() if "cache_seqlens" in tensors else []
    for name, tensor in tensors.items():
        if tensor.dim() == 2 and sizes:
            table = tensor.cpu().numpy()
            for row, (label, length) in enumerate(zip(labels, lengths, strict=False)):
                live = table[row, : -(-max(0, length) // sizes[0])]
                yield key(Kind.PLAN, label, f"static.{name}"), Pages("primary", tuple(live.tolist()))
        elif tensor.dim() == 1 and len(tensor) == forward.bucket and name in forward.buffers.padding:
            numbers = tensor.tolist()
            for label, number in zip(labels, numbers, strict=False):
                slot = name == "state_slots"
                yield key(Kind.PLAN, label, f"static.{name}"), Pages(name, (number,)) if slot else number
            padded = tuple(sorted(set(numbers[len(labels) :])))
            yield key(Kind.PLAN, None, f"static.{name}.padded"), padded
        elif name not in forward.buffers.padding:  # not by row: how many rows are valid, and the like
            yield key(Kind.PLAN, None, f"static.{name}"), tuple(tensor.flatten().tolist())
