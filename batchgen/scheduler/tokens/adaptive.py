"""Adaptive sampling: the temperature of one token, from the raw logits and what the row wrote last."""

from __future__ import annotations

import struct
from enum import StrEnum

from batchgen.scheduler.sequences import ActiveSeq, Adaptive
from batchgen.scheduler.tokens.distribution import entropy_and_top
from batchgen.scheduler.tokens.staging import Row

LOW_ENTROPY = 0.5
#: Run of low entropy -> what is added to the temperature; ratio of distinct windows below -> what multiplies it.
BOOSTS = ((32, 0.3), (16, 0.2), (8, 0.1))
MULTIPLIERS = ((0.15, 1.8), (0.25, 1.4), (0.35, 1.2))
LZ_FROM, LZ_EVERY, LZ_LAST, LZ_WINDOWS = 32, 16, 128, range(3, 7)


class Zone(StrEnum):
    TOOL_CALL = "tool_call"
    THINKING = "thinking"
    STRUCTURED = "structured"
    FREE_TEXT = "free_text"


#: A top probability from which on the likeliest token is taken.
GATES = {Zone.TOOL_CALL: 0.80, Zone.STRUCTURED: 0.85, Zone.FREE_TEXT: 0.90, Zone.THINKING: 0.95}


def zone_of(row: ActiveSeq) -> Zone:
    """`opened` is set by a required call (or the reopen guard) and never taken back: such a row stays in TOOL_CALL."""
    if row.tools.opened:
        return Zone.TOOL_CALL
    if row.thinking.inside:
        return Zone.THINKING
    return Zone.FREE_TEXT if row.grammar is None else Zone.STRUCTURED


def adapt(row: ActiveSeq, raw: Row) -> float:
    """Notes `raw` (logits before any mask) on the row; the temperature to sample with, 0: take the likeliest."""
    state, base, zone = row.adaptive, row.sampling.temperature, zone_of(row)
    entropy, top = entropy_and_top(raw)
    if entropy == entropy:  # not nan: damaged logits say nothing
        state.low_entropy_run = state.low_entropy_run + 1 if entropy < LOW_ENTROPY else 0
    _note_ratio(state, row.output_tokens)
    if base == 0.0 or top >= GATES[zone]:
        return 0.0
    if zone is Zone.TOOL_CALL:
        return min(base, 0.3)
    if zone is Zone.STRUCTURED:
        base *= 0.6
    boost = next((boost for run, boost in BOOSTS if state.low_entropy_run >= run), 0.0)
    return (base + boost) * next((by for below, by in MULTIPLIERS if state.lz_ratio < below), 1.0)


def _note_ratio(state: Adaptive, outputs: list[int]) -> None:
    if len(outputs) >= LZ_FROM and len(outputs) - state.lz_checked_at >= LZ_EVERY:
        state.lz_ratio, state.lz_checked_at = distinct_ratio(outputs[-LZ_LAST:]), len(outputs)


def distinct_ratio(tokens: list[int]) -> float:
    """Distinct over all windows of 3 to 6 bytes of the tokens, 4 little-endian bytes each."""
    data = struct.pack(f"<{len(tokens)}I", *tokens)
    distinct = total = 0
    for width in LZ_WINDOWS:
        count = len(data) - width + 1
        distinct += len({data[at : at + width] for at in range(count)})
        total += count
    return distinct / total
