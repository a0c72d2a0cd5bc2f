"""Whether an end-of-sequence token may end the row now."""

from __future__ import annotations

from batchgen.scheduler.ports import Limits
from batchgen.scheduler.sequences import ActiveSeq
from batchgen.scheduler.tokens.budget import at_hard_ceiling

CONTENT_AFTER_THINKING = 16


def held_by(row: ActiveSeq, limits: Limits) -> frozenset[str]:
    """What holds an EOS back; empty: nothing does, and it ends the row.

    "grammar": the constrained text cannot end here. "required": a tool call is due. "min_tokens". "thinking": the
    block is open, and there is room to go on. "after_thinking": a request with tools has written fewer than 16
    tokens besides its thinking, so it may still call one.
    """
    thinking, tools, outputs = row.thinking, row.tools, len(row.output_tokens)
    holds = set()
    if row.grammar is not None:
        # Once a call is complete, and outside a call and a block, the grammar no longer has a say.
        escapes = tools.completed and not tools.inside_body and not thinking.inside
        if not escapes and row.grammar.blocks_stop():
            holds.add("grammar")
    if tools.required:
        holds.add("required")
    if outputs < row.min_tokens:
        holds.add("min_tokens")
    if thinking.inside and not at_hard_ceiling(row, limits):
        holds.add("thinking")
    armed = tools.required or tools.requested
    if armed and thinking.ended and outputs - thinking.tokens < CONTENT_AFTER_THINKING:
        holds.add("after_thinking")
    return frozenset(holds)
