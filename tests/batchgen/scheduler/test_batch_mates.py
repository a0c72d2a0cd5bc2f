"""Whether a row's tokens depend on the rows beside it: one of them may send all rows to the host."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from batchgen.scheduler.quirks import Quirks
from batchgen.scheduler.sequences import RowSampling, ToolCalls
from tests.batchgen.scheduler.rows import admit, context
from tests.batchgen.scheduler.stepping import Batch
from tests.batchgen.scheduler.stub_device import StubDevice

DEFECT = dataclasses.replace(Quirks.corrected(), argmax_ignores_penalties=True)


def likely_tool_call(tokens: Sequence[int], logits: NDArray[np.float32]) -> None:
    logits[5] += 4


def written(sampling: RowSampling, tools: ToolCalls, quirks: Quirks, with_a_sampled_mate: bool) -> list[int]:
    """What a greedy row writes in twelve steps; the device's logits are bfloat16, its choice is the plain maximum."""
    device = StubDevice(logits_are_fp32=False, vocab_size=12, shape=likely_tool_call)
    row = admit(device, "row", [7, 8, 9], sampling=sampling, tools=dataclasses.replace(tools))
    active = [row]
    if with_a_sampled_mate:
        active.append(admit(device, "mate", [3], sampling=RowSampling(temperature=1.0)))
    batch = Batch(context(device, quirks=quirks), active, ids=(None, None, None, 5, None))
    for _ in range(12):
        batch.step()
    return row.output_tokens


@pytest.mark.parametrize(
    ("sampling", "tools"),
    [
        (RowSampling(repetition_penalty=3.0), ToolCalls()),
        (RowSampling(logit_bias={4: 9.0}), ToolCalls()),
        (RowSampling(), ToolCalls(suppressed=True)),
    ],
    ids=["penalty", "bias", "suppressed tool call"],
)
def test_a_greedy_row_writes_the_same_beside_any_mate_but_for_the_quirk(
    sampling: RowSampling, tools: ToolCalls
) -> None:
    alone, beside = (written(sampling, tools, Quirks.corrected(), mate) for mate in (False, True))
    assert alone == beside
    assert written(sampling, tools, DEFECT, True) == beside
    plain = written(RowSampling(), ToolCalls(), DEFECT, False)
    assert written(sampling, tools, DEFECT, False) == plain != beside
