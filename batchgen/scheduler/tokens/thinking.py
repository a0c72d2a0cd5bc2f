"""Entering, going through and leaving a thinking block. All outside it is `content`."""

from __future__ import annotations

import logging

from batchgen.scheduler.ports import Watchdogs
from batchgen.scheduler.sequences import ActiveSeq, Thinking
from batchgen.scheduler.tokens.guards import Guard
from batchgen.scheduler.tokens.repetition import loop_period

log = logging.getLogger(__name__)

SPONTANEOUS_AT_LEAST = 8
MOST_HALVINGS = 4
STRAY_ENDS = 50


def open_spontaneous(thinking: Thinking) -> None:
    """The model began to think by itself. Its budget halves with each time the loop watchdog fired before."""
    thinking.inside = True
    thinking.ended = False
    thinking.skip_count = 0
    halved = thinking.spontaneous_budget >> min(thinking.watchdog_fires, MOST_HALVINGS)
    thinking.budget = max(SPONTANEOUS_AT_LEAST, halved)


def drop_stray_end(row: ActiveSeq) -> None:
    """`</think>` with no block open: the 50th ends the turn."""
    row.thinking.skip_count += 1
    if row.thinking.skip_count >= STRAY_ENDS:
        row.finished, row.guard_stop = True, Guard.STRAY_THINK_ENDS


def close(thinking: Thinking) -> None:
    thinking.inside = False
    thinking.force_end = False
    thinking.deferred = 0
    thinking.confident_run = 0
    thinking.in_code_fence = False
    thinking.ended = True
    thinking.just_ended = True


def arm_forced_end(thinking: Thinking) -> None:
    """From the next step on the pipeline closes the block as soon as a sentence allows it."""
    thinking.force_end = True
    thinking.deferred = 0


def advance(row: ActiveSeq, token: int, code_fence: int | None, watchdogs: Watchdogs) -> None:
    """One more token inside the block; `row.output_tokens` does not have it yet."""
    thinking = row.thinking
    thinking.tokens += 1
    if token == code_fence:
        thinking.in_code_fence = not thinking.in_code_fence
    if thinking.force_end:
        return
    if thinking.budget is not None and thinking.tokens >= thinking.budget:
        arm_forced_end(thinking)
        log.debug("%s: thinking budget of %d used up", row.request_id, thinking.budget)
    elif _in_a_loop(row, watchdogs):
        arm_forced_end(thinking)
        thinking.watchdog_fires += 1
        log.warning("%s: thinking repeats itself at token %d; closing it", row.request_id, thinking.tokens)


def _in_a_loop(row: ActiveSeq, watchdogs: Watchdogs) -> bool:
    tokens = row.thinking.tokens
    return (
        watchdogs.enabled
        and row.repetition_detection
        and tokens >= watchdogs.think_loop_from
        and tokens % watchdogs.think_loop_stride == 0
        and loop_period(row.output_tokens, watchdogs.think_loop_periods, watchdogs.think_loop_repeats)
        is not None
    )
