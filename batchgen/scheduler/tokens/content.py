"""One token outside thinking, and what keeping a token does."""

from __future__ import annotations

import logging

from batchgen.sampling import TokenLogprob
from batchgen.scheduler.ports import SchedCtx, Watchdogs
from batchgen.scheduler.sequences import ActiveSeq, RowEvent, TokenIds
from batchgen.scheduler.tokens.budget import at_context_end
from batchgen.scheduler.tokens.guards import Guard
from batchgen.scheduler.tokens.repetition import fuzzy_length, loop_period
from batchgen.scheduler.tokens.tool_calls import advance_body

log = logging.getLogger(__name__)


def advance_content(row: ActiveSeq, watchdogs: Watchdogs) -> None:
    """Counts one more token of content; `row.output_tokens` does not have it yet. Where the engine studied rolls a
    looping row back, the guard ends it: the token is still kept."""
    tools = row.tools
    tools.content_started = True
    tools.content_tokens += 1
    row.thinking.just_ended = False
    if not watchdogs.enabled:
        return
    if row.grammar is not None and tools.content_tokens > watchdogs.grammar_content:
        _stop(row, Guard.GRAMMAR_CONTENT)
    if tools.inside_body:
        return
    if (
        row.repetition_detection
        and tools.content_tokens >= watchdogs.content_loop_from
        and tools.content_tokens % watchdogs.content_loop_stride == 0
        and loop_period(row.output_tokens, watchdogs.content_loop_periods, watchdogs.content_loop_repeats)
    ):
        _stop(row, Guard.CONTENT_LOOP)
    if tools.requested:
        tools.prose_since_last += 1
        if 0 < watchdogs.inter_tool_prose < tools.prose_since_last:
            _stop(row, Guard.INTER_TOOL_PROSE)


def keep(row: ActiveSeq, token: int, logprob: TokenLogprob | None, sched: SchedCtx) -> None:
    """Into the outputs, with its log probability beside it."""
    row.output_tokens.append(token)
    if logprob is not None and not sched.quirks.logprobs_of_dropped_eos:
        row.logprobs.append(logprob)


def stream(row: ActiveSeq, token: int, logprob: TokenLogprob | None) -> None:
    """To whoever waits for it; where nobody does any more the row is finished."""
    if not row.receiver.send(RowEvent("token", token, extra=logprob)):
        row.finished = True


def emit(
    row: ActiveSeq, token: int, logprob: TokenLogprob | None, own: TokenIds, sched: SchedCtx, silent: bool
) -> None:
    """A token that is kept, streamed unless `silent`, and may be the last one."""
    keep(row, token, logprob, sched)
    inside = row.thinking.inside
    if not inside:
        advance_body(row, token, own, sched)
    if not silent:
        stream(row, token, logprob)
    stop_at_limits(row, sched)
    if row.grammar is not None and row.grammar.is_terminated():
        row.finished = True
    watchdogs = sched.watchdogs
    if (
        watchdogs.enabled
        and row.repetition_detection
        and not row.finished
        and not inside
        and not row.tools.inside_body
        and fuzzy_length(row.output_tokens, watchdogs.fuzzy_tolerance)
    ):
        _stop(row, Guard.FUZZY_REPETITION)


def stop_at_limits(row: ActiveSeq, sched: SchedCtx) -> None:
    if row.remaining == 0 or at_context_end(row, sched.limits):
        row.finished = True


def _stop(row: ActiveSeq, guard: Guard) -> None:
    row.finished, row.guard_stop = True, guard
    log.warning("%s: stopped after %d tokens: %s", row.request_id, len(row.output_tokens), guard)
