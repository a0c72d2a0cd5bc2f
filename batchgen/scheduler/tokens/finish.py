"""Why a finished row ended, as its client is told."""

from __future__ import annotations

from batchgen.scheduler.ports import SchedCtx
from batchgen.scheduler.sequences import ActiveSeq, FinishReason, TokenIds
from batchgen.scheduler.tokens.budget import at_hard_ceiling


def finish_reason(row: ActiveSeq, ids: TokenIds, sched: SchedCtx) -> FinishReason:
    """A deadline before what the model chose, that before a guard, a guard before the ceilings.

    `ids`: those of the step. A row with an `error` has no reason: its client gets the error.
    """
    if row.timed_out:
        return FinishReason.TIMEOUT
    end = (row.ids if sched.quirks.row_token_ids_decide else ids).tool_call_end
    if row.output_tokens:
        last = row.output_tokens[-1]
        if last in row.eos_tokens:
            return FinishReason.STOP
        if last == end:
            return FinishReason.TOOL_CALLS
    if row.guard_stop is not None or at_hard_ceiling(row, sched.limits):
        return FinishReason.LENGTH
    return FinishReason.STOP
