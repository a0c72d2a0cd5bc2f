"""How rows end in an error: one event each, what they hold is freed, nothing of them goes to the prefix cache."""

from __future__ import annotations

import logging

from batchgen.scheduler.errors import LaunchError
from batchgen.scheduler.ports import SchedCtx
from batchgen.scheduler.sequences import ActiveSeq, RowEvent, SequenceState
from batchgen.scheduler.trace import StepTrace

log = logging.getLogger(__name__)


def release_seq(sched: SchedCtx, seq: SequenceState, *, cache: bool) -> None:
    """Gives back what the device holds of a sequence. What it says against that is logged: others come after."""
    try:
        sched.io.device.release(seq, cache=cache)
    except LaunchError as error:
        sched.io.telemetry.count("release_failed")
        log.error("release of slot=%s failed: %s", seq.slot_idx, error)


def send_error(row: ActiveSeq, text: str) -> None:
    """The one final event of a request that failed and holds nothing on the device."""
    row.error, row.finished = text, True
    row.receiver.send(RowEvent("error", text=text))


def fail_row(sched: SchedCtx, row: ActiveSeq, text: str) -> None:
    send_error(row, text)
    release_seq(sched, row.seq, cache=False)


def fail_rows(active: list[ActiveSeq], text: str, sched: SchedCtx, trace: StepTrace | None) -> None:
    """When a step fails as a whole: every row that is still active is told, and `active` is empty."""
    for row in active:
        fail_row(sched, row, text)
    if trace is not None:
        trace.outcome, trace.drained = "failed", tuple(row.request_id for row in active)
    active.clear()
