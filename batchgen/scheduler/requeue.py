"""Parking a row without a store: its blocks go, its history stays, and a prefill brings it back."""

from __future__ import annotations

import logging

from batchgen.scheduler.drain import fail_row, release_seq, send_error
from batchgen.scheduler.errors import LaunchError
from batchgen.scheduler.planned import ask
from batchgen.scheduler.ports import SchedCtx
from batchgen.scheduler.resume_plan import Reclaim, Refuse, Resume, plan_requeue_resume
from batchgen.scheduler.sequences import ActiveSeq, PreemptedSeq
from batchgen.scheduler.snapshots import ParkedRow, PoolRoom

log = logging.getLogger(__name__)

GROWTH_BLOCKS = 1


def preempt_requeue(sched: SchedCtx, a: ActiveSeq) -> PreemptedSeq:
    """The row as it waits for its prefill. Its blocks are offered to the prefix cache, then freed."""
    tokens = history_of(sched, a)
    release_seq(sched, a.seq, cache=True)
    sched.io.telemetry.count("requeued")
    return PreemptedSeq(a, tokens)


def history_of(sched: SchedCtx, a: ActiveSeq) -> list[int]:
    """What the model was fed, the dropped tokens as well; the pending `last_token` was not yet."""
    if sched.quirks.history_without_dropped:
        return a.seq.tokens[: a.prompt_tokens] + a.output_tokens[:-1]
    return list(a.seq.tokens)


def resume_preempted_seqs(sched: SchedCtx, preempted: list[PreemptedSeq], active: list[ActiveSeq]) -> None:
    """Brings back what fits, fewest blocks first; one that can never fit gets an error."""
    device = sched.io.device
    dry = False
    while True:
        room = PoolRoom(device.free_blocks, device.total_blocks, sched.limits.max_batch - len(active))
        waiting = tuple(
            ParkedRow(parked.a.request_id, len(parked.tokens) // device.block_size + 1)
            for parked in preempted
        )
        plan = ask(sched, plan_requeue_resume, room, waiting, GROWTH_BLOCKS, dry)
        if isinstance(plan, Reclaim):
            dry = device.reclaim(plan.blocks) == 0
        elif isinstance(plan, Refuse):
            refuse(sched, preempted.pop(plan.index).a, plan.blocks)
        elif isinstance(plan, Resume):
            resume_preempted_seq(sched, preempted.pop(plan.index), active)
        else:
            return


def resume_preempted_seq(sched: SchedCtx, parked: PreemptedSeq, active: list[ActiveSeq]) -> None:
    """Prefill of the exact history; its logits are dropped, for `last_token` was sampled from them before.

    Where it fails the request gets an error.
    """
    a, device = parked.a, sched.io.device
    try:
        seq = device.alloc_sequence()
    except LaunchError as error:
        log.error("preempt-resume alloc of %s failed: %s", a.request_id, error)
        send_error(a, f"preempt-resume alloc failed: {error}")
        return
    a.seq = seq
    try:
        device.prefill(parked.tokens, seq)
    except LaunchError as error:
        log.error("preempt-resume re-prefill of %s failed: %s", a.request_id, error)
        fail_row(sched, a, f"preempt-resume re-prefill failed: {error}")
        return
    make_active(sched, a, active)
    sched.io.telemetry.count("resumed")


def make_active(sched: SchedCtx, a: ActiveSeq, active: list[ActiveSeq]) -> None:
    """Back among the rows, and for some tokens the last to be parked again."""
    a.immune_until = len(a.output_tokens) + sched.limits.preempt_immunity
    active.append(a)


def refuse(sched: SchedCtx, a: ActiveSeq, blocks: int) -> None:
    """The error of a parked row that wants more blocks than the pool has."""
    total = sched.io.device.total_blocks
    log.error("%s can never be resumed: it needs %d KV blocks of %d", a.request_id, blocks, total)
    send_error(a, f"cannot be resumed: it needs {blocks} KV blocks, the pool has {total}")
