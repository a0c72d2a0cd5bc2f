"""Bringing spilled rows back."""

from __future__ import annotations

import logging

from batchgen.scheduler.drain import fail_row, send_error
from batchgen.scheduler.forgetting import forget_in_spill
from batchgen.scheduler.planned import ask
from batchgen.scheduler.ports import SchedCtx, SpillIo
from batchgen.scheduler.requeue import GROWTH_BLOCKS, make_active, refuse
from batchgen.scheduler.resume_plan import Reclaim, Refuse, Resume, plan_swap_in
from batchgen.scheduler.sequences import ActiveSeq, SwappedSeq
from batchgen.scheduler.snapshots import ParkedRow, PoolRoom
from batchgen.scheduler.spilling import SPILL_FAILURES, remove_entry

log = logging.getLogger(__name__)


def swap_in(sched: SchedCtx, spill: SpillIo, swapped: list[SwappedSeq], active: list[ActiveSeq]) -> None:
    """Brings back what fits, first in first out; a failure ends this round."""
    device = sched.io.device
    growth = 0 if sched.quirks.swap_in_without_growth else GROWTH_BLOCKS
    dry = False
    while True:
        room = PoolRoom(device.free_blocks, device.total_blocks, sched.limits.max_batch - len(active))
        waiting = tuple(ParkedRow(parked.a.request_id, parked.num_blocks) for parked in swapped)
        plan = ask(sched, plan_swap_in, room, waiting, growth, dry)
        if isinstance(plan, Reclaim):
            dry = device.reclaim(plan.blocks) == 0
        elif isinstance(plan, Refuse):
            parked = swapped.pop(plan.index)
            remove_entry(spill, parked.swap_id)
            refuse(sched, parked.a, plan.blocks)
        elif isinstance(plan, Resume):
            if not swap_in_sequence(sched, spill, swapped.pop(plan.index), active):
                return
        else:
            return


def swap_in_sequence(sched: SchedCtx, spill: SpillIo, parked: SwappedSeq, active: list[ActiveSeq]) -> bool:
    """Blocks, state and history as they were, in slots of their own. False: the request got an error.

    An entry that cannot be removed after a good restore is an error as well: its bytes would never come back.
    """
    a, device = parked.a, sched.io.device
    allocated = False
    try:
        seq = device.alloc_sequence()
        allocated = True
        before, a.seq = a.seq, seq
        with spill.open(parked.swap_id) as reader:
            device.restore(seq, reader, parked.num_blocks)
        spill.remove(parked.swap_id)
    except SPILL_FAILURES as error:
        text = f"swap-in failed: {error}"
        log.error("%s: %s", a.request_id, text)
        remove_entry(spill, parked.swap_id)
        if allocated:
            fail_row(sched, a, text)
        else:
            send_error(a, text)
        return False
    seq.tokens, seq.seq_len, seq.prompt_len = parked.tokens, parked.seq_len, before.prompt_len
    if sched.quirks.parked_cannot_end:
        a.cancelled = False
    if sched.quirks.spill_forgets:
        forget_in_spill(a, sched.io.clock.now())
    make_active(sched, a, active)
    sched.io.telemetry.count("swapped_in")
    return True
