"""Parked requests that end where they are: cancelled, or past their deadline."""

from __future__ import annotations

from batchgen.scheduler.ports import SchedCtx, SpillIo
from batchgen.scheduler.sequences import ActiveSeq, PreemptedSeq, RowEvent, SwappedSeq
from batchgen.scheduler.spilling import remove_entry
from batchgen.scheduler.tokens.finish import finish_reason


def sweep_parked(
    sched: SchedCtx, spill: SpillIo | None, swapped: list[SwappedSeq], preempted: list[PreemptedSeq]
) -> list[ActiveSeq]:
    """The rows that ended, each with its final event sent; their entries are gone from the store.

    Under the quirk `parked_cannot_end` none does before it is resumed.
    """
    if sched.quirks.parked_cannot_end:
        return []
    now = sched.io.clock.now()
    ended = []
    for spilled in [parked for parked in swapped if _has_ended(parked.a, now)]:
        swapped.remove(spilled)
        if spill is not None:
            remove_entry(spill, spilled.swap_id)
        ended.append(spilled.a)
    for requeued in [parked for parked in preempted if _has_ended(parked.a, now)]:
        preempted.remove(requeued)
        ended.append(requeued.a)
    for row in ended:
        row.finished = True
        row.receiver.send(RowEvent("done", finish_reason=finish_reason(row, row.ids, sched)))
        sched.io.telemetry.count("ended_parked")
    return ended


def _has_ended(row: ActiveSeq, now: float) -> bool:
    if row.timeout_at is not None and now >= row.timeout_at:
        row.timed_out = True
    return row.timed_out or row.cancelled
