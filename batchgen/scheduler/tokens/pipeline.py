"""The host's logits pipeline: stages that mask logits or name the token, in a fixed order.

No stage advances a grammar. What a stage counts (confidence, deferral) it counts on the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from batchgen.scheduler.ports import SchedCtx
from batchgen.scheduler.sequences import ActiveSeq, TokenIds
from batchgen.scheduler.tokens.distribution import top_probability
from batchgen.scheduler.tokens.staging import Row
from batchgen.scheduler.tokens.thinking import arm_forced_end

CONFIDENT = 0.95
BUDGET_FACTOR = 3
LONGEST_WITHOUT_BUDGET = 2048
LONGEST_DEFERRAL = 64
SUPPRESSED_TOOL_CALL = 12.0


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stage looks at besides the logits. `own`: the ids that holds and masks by row go by (quirk j)."""

    row: ActiveSeq
    ids: TokenIds
    own: TokenIds
    sched: SchedCtx


def run_stages(logits: Row, stage: Stage) -> int | None:
    """Masks `logits` in place; the token that a stage insists on, None: it is to be sampled."""
    for apply in STAGES:
        forced = apply(logits, stage)
        if forced is not None:
            return forced
    return None


def hold_min_tokens(logits: Row, stage: Stage) -> None:
    if len(stage.row.output_tokens) < stage.row.min_tokens:
        for token in stage.row.eos_tokens:
            _mask(logits, token)


def stop_confident_thinking(logits: Row, stage: Stage) -> None:
    """A long run of certain tokens is not thinking any more: the block is to be closed."""
    thinking, dogs = stage.row.thinking, stage.sched.watchdogs
    if not (dogs.enabled and thinking.inside and not thinking.force_end):
        return
    if thinking.tokens < dogs.confident_from:
        return
    thinking.confident_run = thinking.confident_run + 1 if top_probability(logits) >= CONFIDENT else 0
    if thinking.confident_run >= dogs.confident_run:
        arm_forced_end(thinking)


def mask_think_end_mid_word(logits: Row, stage: Stage) -> None:
    row, vocabulary = stage.row, stage.sched.vocabulary
    if row.thinking.inside and vocabulary is not None and row.output_tokens:
        if row.output_tokens[-1] in vocabulary.mid_word:
            _mask(logits, stage.ids.think_end)


def mask_thinking_after_close(logits: Row, stage: Stage) -> None:
    if stage.row.thinking.ended:
        _mask(logits, stage.ids.think_end)
        _mask(logits, stage.own.think_start)


def mask_tool_call(logits: Row, stage: Stage) -> None:
    """No call begins inside thinking; a request that suppresses calls makes one unlikely."""
    start = stage.ids.tool_call_start
    if stage.row.thinking.inside:
        _mask(logits, start)
    elif stage.row.tools.suppressed and start is not None and start < len(logits):
        logits[start] -= SUPPRESSED_TOOL_CALL


def force_think_end(logits: Row, stage: Stage) -> int | None:
    """Closes an armed block: between sentences and outside a code fence, or when it has gone on for too long."""
    thinking, end = stage.row.thinking, stage.ids.think_end
    if end is None or not (thinking.inside and thinking.force_end):
        return None
    if not _overdue(stage) and (thinking.in_code_fence or not _at_boundary(stage)):
        thinking.deferred += 1
        return None
    return _only(logits, end)


def pin_tool_call(logits: Row, stage: Stage) -> int | None:
    """The first token after thinking, where a call is due."""
    row, start = stage.row, stage.ids.tool_call_start
    if start is None or not (row.thinking.just_ended and row.tools.required):
        return None
    return _only(logits, start)


def emit_only_legal(logits: Row, stage: Stage) -> int | None:
    grammar = stage.row.grammar
    if grammar is None or stage.row.thinking.inside:
        return None
    token = grammar.only_token()
    return None if token is None else _only(logits, token)


def mask_by_grammar(logits: Row, stage: Stage) -> None:
    grammar = stage.row.grammar
    if grammar is not None and not stage.row.thinking.inside:
        for token in range(len(logits)):
            if not grammar.allows(token):
                logits[token] = -np.inf


STAGES: tuple[Callable[[Row, Stage], int | None], ...] = (
    hold_min_tokens,
    stop_confident_thinking,
    mask_think_end_mid_word,
    mask_thinking_after_close,
    mask_tool_call,
    force_think_end,
    pin_tool_call,
    emit_only_legal,
    mask_by_grammar,
)


def _overdue(stage: Stage) -> bool:
    thinking = stage.row.thinking
    longest = LONGEST_WITHOUT_BUDGET if thinking.budget is None else BUDGET_FACTOR * thinking.budget
    return thinking.tokens >= longest or thinking.deferred >= LONGEST_DEFERRAL


def _at_boundary(stage: Stage) -> bool:
    outputs, vocabulary = stage.row.output_tokens, stage.sched.vocabulary
    return vocabulary is None or not outputs or outputs[-1] in vocabulary.sentence_end


def _mask(logits: Row, token: int | None) -> None:
    if token is not None and token < len(logits):
        logits[token] = -np.inf


def _only(logits: Row, token: int) -> int:
    """The distribution says so as well: what is logged of it is what happened."""
    logits[:] = -np.inf
    logits[token] = 0.0
    return token
