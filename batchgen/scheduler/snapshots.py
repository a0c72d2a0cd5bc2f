"""What planners are asked with: frozen values, so that a question can be kept and asked again elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchgen.scheduler.sequences import ActiveSeq


@dataclass(frozen=True, slots=True)
class RowSlots:
    slot_idx: int
    ssm_slot: int | None


@dataclass(frozen=True, slots=True)
class ReadbackRow:
    """What decides where a row's token is chosen. `neutral`: penalties and bias change nothing.
    `tool_call_steered`: the start of a tool call is made unlikely, or is due now."""

    temperature: float
    constrained: bool
    wants_logprobs: bool
    min_tokens: int
    outputs: int
    inside_thinking: bool
    think_ended: bool
    neutral: bool
    tool_call_steered: bool


@dataclass(frozen=True, slots=True)
class VictimRow:
    """A row that could be parked. `outputs` and `immune_until` count generated tokens."""

    request_id: str
    slot_idx: int
    outputs: int
    immune_until: int
    constrained: bool
    blocks: int


@dataclass(frozen=True, slots=True)
class ParkedRow:
    """`blocks`: what it takes to have the row back, without one to grow into."""

    request_id: str
    blocks: int


@dataclass(frozen=True, slots=True)
class PoolRoom:
    """`free` blocks of `total` (0: unknown), and `rows` more that may be active."""

    free: int
    total: int
    rows: int


def slots_of(active: Sequence[ActiveSeq]) -> tuple[RowSlots, ...]:
    return tuple(RowSlots(a.seq.slot_idx, a.seq.ssm_slot) for a in active)


def readback_rows(active: Sequence[ActiveSeq]) -> tuple[ReadbackRow, ...]:
    return tuple(
        ReadbackRow(
            a.sampling.temperature,
            a.grammar is not None,
            a.sampling.top_logprobs is not None,
            a.min_tokens,
            len(a.output_tokens),
            a.thinking.inside,
            a.thinking.ended,
            a.sampling.is_neutral,
            a.tools.suppressed or (a.tools.required and a.thinking.just_ended),
        )
        for a in active
    )


def victim_rows(active: Sequence[ActiveSeq]) -> tuple[VictimRow, ...]:
    return tuple(
        VictimRow(
            a.request_id,
            a.seq.slot_idx,
            len(a.output_tokens),
            a.immune_until,
            a.grammar is not None,
            a.num_blocks,
        )
        for a in active
    )
