"""What a launch gave back -> a token for each row, and what it does to the row."""

from __future__ import annotations

import logging
from collections.abc import Collection

from batchgen.scheduler.drain import fail_rows
from batchgen.scheduler.errors import LaunchError, ReadbackError
from batchgen.scheduler.ports import DecodeOutcome, ReadbackKind, SchedCtx, Ticket
from batchgen.scheduler.sequences import ActiveSeq, TokenIds
from batchgen.scheduler.tokens.decoded import process_decoded_token
from batchgen.scheduler.tokens.delta import Recorder, delta, snapshot
from batchgen.scheduler.tokens.host import sample_rows
from batchgen.scheduler.tokens.sample import Sampled
from batchgen.scheduler.trace import StepTrace

log = logging.getLogger(__name__)


def process_decode_logits(
    active: list[ActiveSeq],
    outcome: DecodeOutcome,
    ticket: Ticket,
    staging: bytearray,
    t0: float,
    think_end_token: int | None,
    think_start_token: int | None,
    code_fence_token: int | None,
    tool_call_start_token: int | None,
    tool_call_end_token: int | None,
    adaptive_sampling: bool,
    sched: SchedCtx,
    trace: StepTrace | None = None,
    skip: Collection[int] = (),
) -> None:
    """Row i of `outcome` belongs to `active[i]`; rows in `skip` are left untouched.

    Afterwards `staging` is back in `sched.scratch.host_bytes`. Where logits cannot be read, every row gets an error,
    `active` is empty and the buffer is not put back. `t0`: when the step began, by the scheduler's clock.
    """
    ids = TokenIds(
        think_end_token, think_start_token, code_fence_token, tool_call_start_token, tool_call_end_token
    )
    rows = [(index, row) for index, row in enumerate(active) if index not in skip]
    before = [snapshot(row) for _, row in rows] if trace is not None and sched.levers.trace_rows else []
    try:
        sampled = _choose(rows, len(active), outcome, ticket, staging, ids, adaptive_sampling, sched)
    except LaunchError as error:
        log.error("reading back logits failed: %s", error)
        fail_rows(active, str(error), sched, trace)
        return
    sched.scratch.host_bytes = staging
    if trace is not None:
        trace.outcome, trace.buffer = "stepped", "returned"
        trace.tokens = tuple(choice.token for choice in sampled)
    now = sched.io.clock.now()
    if log.isEnabledFor(logging.DEBUG):
        log.debug(_line(len(active), now - t0, sampled))
    for at, ((_, row), choice) in enumerate(zip(rows, sampled, strict=True)):
        if not before:
            _apply(row, choice, now, ids, sched)
            continue
        assert trace is not None
        recorder = Recorder(row.receiver)
        row.receiver = recorder
        try:
            _apply(row, choice, now, ids, sched)
        finally:
            row.receiver = recorder.receiver
        trace.rows.append(delta(row, choice.token, before[at], recorder.events))


def _choose(
    rows: list[tuple[int, ActiveSeq]],
    count: int,
    outcome: DecodeOutcome,
    ticket: Ticket,
    staging: bytearray,
    ids: TokenIds,
    adaptive_sampling: bool,
    sched: SchedCtx,
) -> list[Sampled]:
    """The device's choices, unless one of them would close or open thinking where it just ended: then all rows of the
    step go through the host after all."""
    if outcome.rows != count:
        raise ReadbackError(f"the device gave {outcome.rows} rows back for {count}")
    if outcome.readback is ReadbackKind.ARGMAX:
        tokens = outcome.tokens
        if tokens is None or len(tokens) != count:
            raise ReadbackError(
                f"the device gave {0 if tokens is None else len(tokens)} tokens for {count} rows"
            )
        if not any(_reopens_thinking(row, tokens[index], ids, sched) for index, row in rows):
            return [Sampled(tokens[index]) for index, _ in rows]
        sched.io.telemetry.count("argmax_fallbacks")
        outcome = sched.io.device.read_logits(ticket, staging)
    return sample_rows(rows, outcome, staging, ids, adaptive_sampling, sched)


def _reopens_thinking(row: ActiveSeq, token: int, ids: TokenIds, sched: SchedCtx) -> bool:
    if not row.thinking.ended:
        return False
    own = row.ids if sched.quirks.row_token_ids_decide else ids
    return token == ids.think_end or token == own.think_start


def _apply(row: ActiveSeq, choice: Sampled, now: float, ids: TokenIds, sched: SchedCtx) -> None:
    if choice.error is None:
        process_decoded_token(row, choice.token, choice.logprob, now, ids, sched)
    else:
        # One row's damaged logits say nothing of the others.
        log.error("%s: %s", row.request_id, choice.error)
        row.error, row.finished = choice.error, True


def _line(count: int, seconds: float, sampled: list[Sampled]) -> str:
    rate = f"{count / seconds:.1f}" if seconds > 0 else "inf"
    tokens = ", ".join(str(choice.token) for choice in sampled)
    return f"DECODE: n={count} step={seconds * 1000:.1f}ms ({rate} tok/s) tokens=[{tokens}]"
