"""What one decoded token does to its row. docs/step.md has the table; the order of the branches matters."""

from __future__ import annotations

from batchgen.sampling import TokenLogprob
from batchgen.scheduler.ports import SchedCtx
from batchgen.scheduler.sequences import ActiveSeq, TokenIds
from batchgen.scheduler.tokens import thinking as think
from batchgen.scheduler.tokens.budget import consume
from batchgen.scheduler.tokens.content import advance_content, emit, keep, stop_at_limits, stream
from batchgen.scheduler.tokens.eos import held_by
from batchgen.scheduler.tokens.guards import Guard
from batchgen.scheduler.tokens.tool_calls import give_up_requirement, leave_body, note_open


def process_decoded_token(
    row: ActiveSeq, token: int, logprob: TokenLogprob | None, now: float, ids: TokenIds, sched: SchedCtx
) -> None:
    """`token` was chosen for `row`: keep, stream or drop it, and say whether the row is finished.

    `ids` are the special tokens of the step; those of the row count only under the quirk `row_token_ids_decide`. An
    id that is None equals no token. `now`: the scheduler's clock, in seconds.
    """
    thinking, quirks = row.thinking, sched.quirks
    own = row.ids if quirks.row_token_ids_decide else ids
    row.last_token, row.last_token_time = token, now
    row.draws += 1

    if token == sched.levers.tool_response_stop:
        keep(row, token, logprob, sched)
        row.finished, row.guard_stop = True, Guard.TOOL_RESPONSE
        return
    inside = thinking.inside
    if not inside:
        if token == ids.think_start:
            return think.open_spontaneous(thinking)
        if token == ids.think_end:
            return think.drop_stray_end(row)
    if thinking.ended:
        thinking.skip_count = 0
    if row.grammar is not None and not inside:
        row.grammar.accept(token)

    if not consume(row) and not quirks.one_token_over_budget:
        return
    silent = inside and not thinking.enabled
    if not inside:
        advance_content(row, sched.watchdogs)
    elif token == ids.think_end:
        think.close(thinking)
        silent = silent and not quirks.spontaneous_think_end_streamed
    else:
        think.advance(row, token, ids.code_fence, sched.watchdogs)

    if token == ids.tool_call_start and not inside and not note_open(row):
        keep(row, token, logprob, sched)
        if row.grammar is not None and quirks.grammar_accepts_twice:
            row.grammar.accept(token)
        row.finished = True
        return
    give_up_requirement(row)
    if logprob is not None and quirks.logprobs_of_dropped_eos:
        row.logprobs.append(logprob)

    if token == ids.tool_call_end and not inside:
        _close_tool_call(row, token, logprob, sched)
    elif token in row.eos_tokens:
        _end_or_hold(row, token, logprob, sched)
    else:
        emit(row, token, logprob, own, sched, silent)


def _close_tool_call(row: ActiveSeq, token: int, logprob: TokenLogprob | None, sched: SchedCtx) -> None:
    """A call is complete. With tools or a grammar the turn goes on, and may think again."""
    keep(row, token, logprob, sched)
    row.tools.completed = True
    stream(row, token, logprob)
    if row.grammar is None and not row.tools.tools_present:
        row.finished = True
    leave_body(row)
    if row.grammar is not None and sched.quirks.grammar_accepts_twice:
        row.grammar.accept(token)
    row.thinking.ended = False
    if not sched.quirks.one_token_over_budget:
        stop_at_limits(row, sched)


def _end_or_hold(row: ActiveSeq, token: int, logprob: TokenLogprob | None, sched: SchedCtx) -> None:
    """EOS: kept and never streamed, or dropped. One that only an open thinking block holds back closes the block."""
    holds = held_by(row, sched.limits)
    if not holds:
        keep(row, token, logprob, sched)
        row.finished = True
    elif holds == {"thinking"} and row.honor_eos_inside_thinking:
        think.close(row.thinking)
        row.thinking.force_closed = True
    if not sched.quirks.one_token_over_budget:
        stop_at_limits(row, sched)
