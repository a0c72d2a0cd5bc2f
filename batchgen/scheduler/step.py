"""One decode step of the step policy: sort, launch (parking rows where KV blocks run out), sample, emit."""

from __future__ import annotations

from batchgen.scheduler.diagnosis import log_rows
from batchgen.scheduler.launching import decode_batch_with_preemption
from batchgen.scheduler.order import order_rows
from batchgen.scheduler.planned import ask
from batchgen.scheduler.ports import SchedCtx, SpillIo
from batchgen.scheduler.sequences import ActiveSeq, PreemptedSeq, SwappedSeq
from batchgen.scheduler.snapshots import slots_of
from batchgen.scheduler.tokens.logits import process_decode_logits
from batchgen.scheduler.trace import Order, StepTrace


def step_decode_only(
    active: list[ActiveSeq],
    think_end_token: int | None,
    think_start_token: int | None,
    code_fence_token: int | None,
    tool_call_start_token: int | None,
    tool_call_end_token: int | None,
    adaptive_sampling: bool,
    sched: SchedCtx,
    spill: SpillIo | None,
    swapped: list[SwappedSeq],
    preempted: list[PreemptedSeq],
) -> None:
    """Decode one token for every sequence in `active`, then sample and emit.

    With more than one, `active` is sorted ascending by SSM slot (KV slot when a sequence has none) before the launch.
    KV exhaustion moves sequences to `swapped` (with a `spill` store) or `preempted`. All three lists are changed in
    place. Where `sched.record` is set it is called with the StepTrace, also when an exception leaves the step.
    """
    t0 = sched.io.clock.now()
    sched.steps += 1
    trace = None if sched.record is None else StepTrace(sched.steps)
    try:
        if len(active) > 1:
            sort_rows(sched, active)
            log_rows(active)
        if trace is not None:
            trace.order = _order_of(active)
        if not active:
            return
        # Lent, not copied: `process_decode_logits` puts the same object back. A step that fails drops it.
        staging, sched.scratch.host_bytes = sched.scratch.host_bytes, bytearray()
        if trace is not None:
            trace.outcome, trace.buffer = "failed", "dropped"
        launched = decode_batch_with_preemption(sched, active, spill, swapped, preempted, staging, trace)
        if launched is None:
            return
        ticket, outcome = launched
        process_decode_logits(
            active,
            outcome,
            ticket,
            staging,
            t0,
            think_end_token,
            think_start_token,
            code_fence_token,
            tool_call_start_token,
            tool_call_end_token,
            adaptive_sampling,
            sched,
            trace,
        )
        if trace is not None:
            trace.buffer = "returned" if sched.scratch.host_bytes is staging else "dropped"
    finally:
        if trace is not None and sched.record is not None:
            sched.record(trace)


def sort_rows(sched: SchedCtx, active: list[ActiveSeq]) -> None:
    """Whole rows move, so that row i of the result still belongs to `active[i]`."""
    active[:] = [active[index] for index in ask(sched, order_rows, slots_of(active))]


def _order_of(active: list[ActiveSeq]) -> Order:
    keys = tuple([row.seq.sort_key for row in active])
    contiguous = keys == tuple(range(keys[0], keys[0] + len(keys))) if keys else True
    return Order(tuple([row.request_id for row in active]), keys, contiguous)
