"""Where the tokens of a step are chosen: on the device, or on the host with all logits at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchgen.scheduler.ports import ReadbackKind
from batchgen.scheduler.snapshots import ReadbackRow


@dataclass(frozen=True, slots=True)
class ReadbackPlan:
    """`host_row`: the first row that sends all rows to the host, None where none does."""

    kind: ReadbackKind
    host_row: int | None = None


def plan_readback(
    rows: Sequence[ReadbackRow],
    logits_are_fp32: bool,
    argmax_after_thinking: bool,
    argmax_ignores_penalties: bool,
) -> ReadbackPlan:
    """All or nothing: one row that needs the host, or logits in float32, send the whole block there.

    `argmax_after_thinking` (lever): rows whose thinking has ended may be chosen on the device.
    `argmax_ignores_penalties` (quirk): so may greedy rows with penalties, bias or a tool call to hold down or to force,
    though the device applies none of them.
    """
    for index, row in enumerate(rows):
        if _needs_host(row, argmax_after_thinking, argmax_ignores_penalties):
            return ReadbackPlan(ReadbackKind.HOST, index)
    return ReadbackPlan(ReadbackKind.HOST if logits_are_fp32 else ReadbackKind.ARGMAX)


def _needs_host(row: ReadbackRow, argmax_after_thinking: bool, argmax_ignores_penalties: bool) -> bool:
    if row.temperature != 0 or row.constrained or row.wants_logprobs or row.min_tokens > row.outputs:
        return True
    if row.inside_thinking:
        return True
    if row.think_ended and not (argmax_after_thinking and row.neutral):
        return True
    return not (argmax_ignores_penalties or (row.neutral and not row.tool_call_steered))
