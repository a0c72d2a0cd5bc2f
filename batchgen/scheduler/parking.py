"""Making room: one row leaves the batch, the order of the others stays."""

from __future__ import annotations

import logging

from batchgen.scheduler.errors import SpillError
from batchgen.scheduler.ports import SchedCtx, SpillIo
from batchgen.scheduler.requeue import preempt_requeue
from batchgen.scheduler.sequences import ActiveSeq, PreemptedSeq, SwappedSeq
from batchgen.scheduler.spilling import spill_out_sequence
from batchgen.scheduler.trace import StepTrace, Victim
from batchgen.scheduler.victims import Park, Route

log = logging.getLogger(__name__)


def park(
    sched: SchedCtx,
    plan: Park,
    active: list[ActiveSeq],
    spill: SpillIo | None,
    swapped: list[SwappedSeq],
    preempted: list[PreemptedSeq],
    trace: StepTrace | None,
) -> None:
    """Spilled or requeued, as planned; a spill that fails becomes a requeue. Its receiver is sent nothing."""
    row = active.pop(plan.index)
    blocks = row.num_blocks
    log.warning(
        "KV cache exhausted during decode: preempting slot=%d (%d blocks, %d tokens generated) "
        "for later RESUME so the other %d sequence(s) can continue",
        row.seq.slot_idx,
        blocks,
        len(row.output_tokens),
        len(active),
    )
    sched.io.telemetry.count("preempted")
    route, spill_error = Route.REQUEUE, None
    if plan.route is Route.SPILL and spill is not None:
        try:
            swapped.append(spill_out_sequence(sched, row, spill))
            route = Route.SPILL
        except SpillError as error:
            spill_error = str(error)
            sched.io.telemetry.count("spill_failed")
            log.warning("%s; slot=%d is requeued for a prefill", error, row.seq.slot_idx)
    if route is Route.REQUEUE:
        preempted.append(preempt_requeue(sched, row))
    if trace is not None:
        trace.victims.append(Victim(row.request_id, route, blocks, spill_error))
