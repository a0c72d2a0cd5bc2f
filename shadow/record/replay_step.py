"""Decode steps replayed: which page each sequence writes its next token to, and how far attention reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shadow.diff import Mismatch, Nature
from shadow.observation import Kind, Point
from shadow.record.names import Shape
from shadow.record.pack import INTEGER, VALUE
from shadow.record.planners import StepInputs, StepPlan, StepPlanner
from shadow.record.unpack import Block, Chunk

_CONTEXT, _KV_LEN = "current_context_length", "kv_len"
_OWNED, _LIVE = ".owned_pages", ".live_pages"


@dataclass(frozen=True, eq=False)
class _Rows:
    """Places in a shape of what one pool shows of its sequences, aligned: one item a sequence."""

    pool: str
    labels: list[str]
    context: list[int]
    kv_len: list[int]
    owned: list[int]
    live: list[int]


def _rows(shape: Shape) -> list[_Rows]:
    by_field: dict[str, dict[str, int]] = {}
    for place, key in enumerate(shape.keys):
        if key.kind in (Kind.SEQUENCE, Kind.PAGE_TABLE) and key.sequence is not None:
            by_field.setdefault(key.field, {})[key.sequence] = place
    context, kv_len = by_field.get(_CONTEXT, {}), by_field.get(_KV_LEN, {})
    found = []
    for field, live in by_field.items():
        if field.endswith(_LIVE):
            pool = field.removesuffix(_LIVE)
            owned = by_field.get(pool + _OWNED, {})
            labels = [label for label in live if label in context and label in kv_len and label in owned]
            parts = [[places[label] for label in labels] for places in (context, kv_len, owned, live)]
            found.append(_Rows(pool, labels, *parts))
    return found


class StepReplay:
    """Replays the decode events of chunk after chunk through one planner. `page_size` in tokens."""

    kind, point = Kind.PAGE_TABLE, Point.DECODE

    def __init__(self, planner: StepPlanner, page_size: int) -> None:
        self._planner, self._page_size = planner, page_size
        self._layouts: dict[Shape, list[_Rows]] = {}

    def replay(self, chunk: Chunk) -> Iterator[tuple[int, int, tuple[Mismatch, ...]]]:
        """(place in the chunk, plans, what differs): the plans of equal events under the block's first one."""
        for block in chunk.blocks:
            if block.shape.point is not Point.DECODE:
                continue
            layout = self._layouts.get(block.shape)
            if layout is None:
                layout = self._layouts[block.shape] = _rows(block.shape)
            for rows in layout:
                if rows.labels:
                    yield from self._pool(chunk, block, rows)

    def _pool(
        self, chunk: Chunk, block: Block, rows: _Rows
    ) -> Iterator[tuple[int, int, tuple[Mismatch, ...]]]:
        classes = block.classes
        if not (
            np.all(classes[rows.context + rows.kv_len] == INTEGER)
            and np.all(classes[rows.owned + rows.live] == VALUE)
        ):
            raise ValueError("lengths and page lists of decode steps are of other types than they should be")
        owned, live = block.matrix[rows.owned], block.matrix[rows.live]
        pages = _Lists(chunk)
        inputs = StepInputs(self._page_size, block.matrix[rows.context], pages.lengths(owned))
        plan = self._planner(inputs)
        kv_len = block.matrix[rows.kv_len]
        differs = (
            (plan.kv_len != kv_len) | (plan.pages != pages.lengths(live)) | ~pages.continues(live, owned)
        )
        bad = np.flatnonzero(differs.any(axis=0))
        yield int(block.events[0]), kv_len.size, ()
        for column in bad.tolist():
            index = int(block.events[column])
            found = [
                mismatch
                for row in np.flatnonzero(differs[:, column]).tolist()
                for mismatch in _differences(chunk, rows, plan, int(chunk.steps[index]), row, column, block)
            ]
            yield index, 0, tuple(found)


class _Lists:
    """Page lists of a chunk by number: their lengths, and which of them begin which."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk

    def lengths(self, numbers: np.ndarray) -> np.ndarray:
        distinct, inverse = np.unique(numbers, return_inverse=True)
        sizes = np.asarray([len(self._chunk.integers(number)) for number in distinct.tolist()], np.int64)
        return sizes[inverse].reshape(numbers.shape)

    def continues(self, starts: np.ndarray, wholes: np.ndarray) -> np.ndarray:
        """bool of the same shape: whether the first list is the beginning of the second."""
        width = int(wholes.max()) + 1
        distinct, inverse = np.unique(starts * width + wholes, return_inverse=True)
        fits = [self._begins(*divmod(pair, width)) for pair in distinct.tolist()]
        return np.asarray(fits, bool)[inverse].reshape(starts.shape)

    def _begins(self, start: int, whole: int) -> bool:
        first, second = self._chunk.integers(start), self._chunk.integers(whole)
        return first == second[: len(first)]


def _differences(
    chunk: Chunk, rows: _Rows, plan: StepPlan, step: int, row: int, column: int, block: Block
) -> Iterator[Mismatch]:
    def at(field: str, ours: int | None, theirs: int | None) -> Mismatch:
        mine, other = ("(absent)" if number is None else str(number) for number in (ours, theirs))
        label = rows.labels[row]
        return Mismatch(Kind.PAGE_TABLE, Nature.VALUE, Point.DECODE, step, label, None, field, mine, other)

    recorded = int(block.matrix[rows.kv_len[row], column])
    planned = int(plan.kv_len[row, column])
    if recorded != planned:
        yield at(_KV_LEN, recorded, planned)
    live = chunk.integers(int(block.matrix[rows.live[row], column]))
    expected = chunk.integers(int(block.matrix[rows.owned[row], column]))[: int(plan.pages[row, column])]
    field = rows.pool + _LIVE
    for place in range(max(len(live), len(expected))):
        ours = live[place] if place < len(live) else None
        theirs = expected[place] if place < len(expected) else None
        if ours != theirs:
            yield at(f"{field}[{place}]", ours, theirs)
            return
