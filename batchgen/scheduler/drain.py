"""When a step fails as a whole: every row that is still active is told, and lets go of what it holds."""

from __future__ import annotations

import logging

from batchgen.scheduler.errors import LaunchError
from batchgen.scheduler.ports import SchedCtx
from batchgen.scheduler.sequences import ActiveSeq, RowEvent
from batchgen.scheduler.trace import StepTrace

log = logging.getLogger(__name__)


def fail_rows(active: list[ActiveSeq], text: str, sched: SchedCtx, trace: StepTrace | None) -> None:
    """Sends one error event to each row, frees its blocks and slots without offering them to the prefix cache, and
    empties `active`. What the device says while freeing is logged: the rows after it are still told."""
    for row in active:
        row.error, row.finished = text, True
        row.receiver.send(RowEvent("error", text=text))
        try:
            sched.io.device.release(row.seq, cache=False)
        except LaunchError as error:
            log.error("release of slot=%s failed: %s", row.seq.slot_idx, error)
    if trace is not None:
        trace.outcome, trace.drained = "failed", tuple(row.request_id for row in active)
    active.clear()
