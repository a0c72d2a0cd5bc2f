"""A record through planners: every decision planned again and compared with the one that was recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Protocol

from shadow.diff import Mismatch
from shadow.observation import Kind, Point
from shadow.record.reader import Record
from shadow.record.unpack import Chunk
from shadow.tally import Tally


class Replay(Protocol):
    """One planner at work. `kind`: of what it plans, `point`: where."""

    kind: Kind
    point: Point

    def replay(self, chunk: Chunk) -> Iterator[tuple[int, int, tuple[Mismatch, ...]]]:
        """(place in the chunk, plans made, what differs from the record)."""


def replay_record(record: Record, replays: Mapping[str, Replay], tally: Tally) -> Counter[str]:
    """Plans made by each planner; a plan is what one sequence is to do in one step. Differences go to `tally`
    in the order of the events. RecordError for damage that shows only now."""
    plans: Counter[str] = Counter()
    points = {replay.point for replay in replays.values()}
    for number, chunk in enumerate(record.chunks()):
        found: list[tuple[int, Mismatch]] = []
        for block in chunk.blocks:
            if block.shape.point in points:
                tally.points[block.shape.point] += len(block.events)
        for name, replay in replays.items():
            planned = 0
            for index, count, mismatches in record.guarded(
                number, lambda r=replay, c=chunk: list(r.replay(c))
            ):
                planned += count
                found += [(index, mismatch) for mismatch in mismatches]
            plans[name] += planned
            tally.compared[replay.kind] += planned
        for _, mismatch in sorted(found, key=lambda pair: pair[0]):
            tally.find(mismatch)
    return plans
