"""Which parked request comes back next, decided one at a time from what is free at that moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchgen.scheduler.snapshots import ParkedRow, PoolRoom


@dataclass(frozen=True, slots=True)
class Resume:
    index: int


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Take `blocks` back from the prefix cache, then ask again."""

    blocks: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """The row at `index` wants more blocks than there are: it gets an error."""

    index: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing comes back now."""


ResumePlan = Resume | Reclaim | Refuse | Wait


def plan_requeue_resume(room: PoolRoom, parked: Sequence[ParkedRow], growth: int, dry: bool) -> ResumePlan:
    """For requeued rows: the one that needs the fewest blocks, the first on a tie; others wait behind it.

    `growth` blocks more must be free for it to grow into. `dry`: the prefix cache gave nothing when last asked.
    """
    if not parked or room.rows <= 0:
        return Wait()
    index = min(range(len(parked)), key=lambda i: parked[i].blocks)
    wanted = parked[index].blocks + growth
    if 0 < room.total < wanted:
        return Refuse(index, wanted)
    if room.free >= wanted:
        return Resume(index)
    return Wait() if dry else Reclaim(wanted - room.free)


def plan_swap_in(room: PoolRoom, parked: Sequence[ParkedRow], growth: int, dry: bool) -> ResumePlan:
    """For spilled rows: the first that fits. The prefix cache is asked for what the smallest lacks.

    A row that can never fit is refused as a requeued one is.
    """
    if not parked or room.rows <= 0:
        return Wait()
    wanted = [row.blocks + growth for row in parked]
    for index, blocks in enumerate(wanted):
        if 0 < room.total < blocks:
            return Refuse(index, blocks)
    smallest = min(wanted)
    if room.free < smallest:
        return Wait() if dry else Reclaim(smallest - room.free)
    return Resume(next(index for index, blocks in enumerate(wanted) if blocks <= room.free))
