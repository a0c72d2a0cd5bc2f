"""Opening, going through and closing tool calls, outside thinking."""

from __future__ import annotations

from batchgen.scheduler.ports import SchedCtx
from batchgen.scheduler.sequences import ActiveSeq, TokenIds
from batchgen.scheduler.tokens.guards import Guard
from batchgen.scheduler.tokens.parameters import advance_parameter

MOST_OPENS_AFTER_COMPLETION = 8
REQUIRED_UNTIL = 512


def note_open(row: ActiveSeq) -> bool:
    """`<tool_call>`: satisfies a required call and ends the prose. False: it is the 8th since a call was completed,
    and the response ends here."""
    tools = row.tools
    if tools.required:
        tools.required, tools.opened = False, True
    tools.prose_since_last = 0
    if tools.completed:
        tools.opens_after_completion += 1
        if tools.opens_after_completion >= MOST_OPENS_AFTER_COMPLETION:
            tools.opened = True
            return False
    return True


def give_up_requirement(row: ActiveSeq) -> None:
    """A call that does not come in 512 tokens no longer holds the turn open."""
    if row.tools.required and len(row.output_tokens) > REQUIRED_UNTIL:
        row.tools.required = False


def advance_body(row: ActiveSeq, token: int, ids: TokenIds, sched: SchedCtx) -> None:
    """After `token` was pushed outside thinking: inside a call, or not; one that is never closed ends the row."""
    tools = row.tools
    if token == ids.tool_call_start:
        tools.inside_body, tools.body_streak = True, 0
    elif token == ids.tool_call_end:
        leave_body(row)
    elif tools.inside_body:
        if not tools.inside_parameter:
            tools.body_streak += 1
            if sched.watchdogs.enabled and tools.body_streak > sched.watchdogs.tool_body:
                row.finished, row.guard_stop = True, Guard.TOOL_BODY
        if sched.vocabulary is not None:
            advance_parameter(row, token, sched.vocabulary.texts)


def leave_body(row: ActiveSeq) -> None:
    tools = row.tools
    tools.inside_body, tools.body_streak = False, 0
    tools.inside_parameter, tools.parameter_chars, tools.parameter_close_pending = False, 0, False
