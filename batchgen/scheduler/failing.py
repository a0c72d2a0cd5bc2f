"""Launches that failed for good."""

from __future__ import annotations

import logging

from batchgen.scheduler.drain import fail_rows
from batchgen.scheduler.ports import SchedCtx
from batchgen.scheduler.sequences import ActiveSeq
from batchgen.scheduler.trace import StepTrace

log = logging.getLogger(__name__)


def fail_decode(sched: SchedCtx, active: list[ActiveSeq], error: Exception, trace: StepTrace | None) -> None:
    """A forward that cannot be retried. With the device lost the engine is asked to end."""
    log.error("decode_batch error: %s", error)
    fail_rows(active, f"decode_batch error: {error}", sched, trace)
    if sched.io.device.lost:
        sched.request_shutdown()


def fail_readback(
    sched: SchedCtx, active: list[ActiveSeq], error: Exception, trace: StepTrace | None
) -> None:
    """A result that did not reach the host. Nothing is parked, whatever the error says: the rows have advanced. The
    fault latch is not looked at."""
    log.error("argmax_batch error: %s", error)
    fail_rows(active, f"argmax_batch error: {error}", sched, trace)
