"""One launch for the whole batch, retried with a row less as long as KV blocks run out."""

from __future__ import annotations

from batchgen.scheduler.errors import EffectError, ForwardError, LaunchError, ReadbackError, is_kv_exhausted
from batchgen.scheduler.failing import fail_decode, fail_readback
from batchgen.scheduler.parking import park
from batchgen.scheduler.planned import ask
from batchgen.scheduler.ports import Decode, DecodeOutcome, SchedCtx, SpillIo, Ticket
from batchgen.scheduler.readback import plan_readback
from batchgen.scheduler.sequences import ActiveSeq, PreemptedSeq, SwappedSeq
from batchgen.scheduler.snapshots import readback_rows, victim_rows
from batchgen.scheduler.trace import Launch, StepTrace
from batchgen.scheduler.victims import Park, choose_decode_victim


def decode_batch_with_preemption(
    sched: SchedCtx,
    active: list[ActiveSeq],
    spill: SpillIo | None,
    swapped: list[SwappedSeq],
    preempted: list[PreemptedSeq],
    staging: bytearray,
    trace: StepTrace | None,
) -> tuple[Ticket, DecodeOutcome] | None:
    """The result of the launch that succeeded, row i for `active[i]`.

    None: every row that was left got an error and `active` is empty. Rows parked by an earlier retry stay parked.
    """
    ticket = _launch(sched, active, spill, swapped, preempted, staging, trace)
    if ticket is None:
        return None
    try:
        return ticket, sched.io.device.wait(ticket)
    except LaunchError as error:
        fail_readback(sched, active, error, trace)
        return None


def _launch(
    sched: SchedCtx,
    active: list[ActiveSeq],
    spill: SpillIo | None,
    swapped: list[SwappedSeq],
    preempted: list[PreemptedSeq],
    staging: bytearray,
    trace: StepTrace | None,
) -> Ticket | None:
    while True:
        command = command_of(sched, active)
        if sched.ranks is not None:
            ids = tuple(row.request_id for row in active)
            sched.ranks.agree("the rows of a launch", (sched.steps, ids, command.tokens, command.readback))
        try:
            ticket = sched.io.device.launch(command, [row.seq for row in active], staging)
        except (ReadbackError, EffectError) as error:
            _note(trace, active, command, "readback" if isinstance(error, ReadbackError) else "effect")
            fail_readback(sched, active, error, trace)
            return None
        except ForwardError as error:
            exhausted = is_kv_exhausted(error)
            _note(trace, active, command, "kv_exhausted" if exhausted else "forward")
            victim = victim_of(sched, active, spill is not None) if exhausted else None
            if victim is None:
                fail_decode(sched, active, error, trace)
                return None
            park(sched, victim, active, spill, swapped, preempted, trace)
            continue
        _note(trace, active, command, "ok")
        return ticket


def command_of(sched: SchedCtx, active: list[ActiveSeq]) -> Decode:
    """From the rows as they are now: a retry has other tokens, and may have another readback."""
    plan = ask(
        sched,
        plan_readback,
        readback_rows(active),
        sched.io.device.logits_are_fp32,
        sched.levers.argmax_after_thinking,
        sched.quirks.argmax_ignores_penalties,
    )
    return Decode(tuple([row.last_token for row in active]), plan.kind)


def victim_of(sched: SchedCtx, active: list[ActiveSeq], can_spill: bool) -> Park | None:
    """A row alone is never parked: it would come back to the same pool."""
    return ask(sched, choose_decode_victim, victim_rows(active), can_spill) if len(active) > 1 else None


def _note(trace: StepTrace | None, active: list[ActiveSeq], command: Decode, result: str) -> None:
    if trace is not None:
        ids = tuple([row.request_id for row in active])
        trace.launches.append(Launch(ids, command.tokens, command.readback, result))
