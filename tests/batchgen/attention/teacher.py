"""A run whose tokens are given: logits of two backends can be compared at every step, whatever either would choose."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from batchgen.attention import AttentionBackend
from batchgen.models import LoadedModel
from batchgen.scheduler.engine.device import ModelDevice
from batchgen.scheduler.ports import Decode, ReadbackKind

#: Prompt lengths of the rows: within a page, at its end, over several; the last two begin alike.
PROMPTS = (1, 5, 16, 33, 40, 40)
BEGINNING = 32


def teacher_forced(
    loaded: LoadedModel, backend: AttentionBackend, *, steps: int = 24, page: int = 16
) -> Tensor:
    """Logits of the prompts' last tokens and of each step, float32 [1 + steps, rows, vocab], on the CPU.

    Rows are prefilled in two packs, the second behind the cached beginning of the first's last, and decoded
    together by captured steps.
    """
    rng = random.Random(0)
    device = ModelDevice(loaded, num_blocks=64, block_size=page, max_batch=8, attention=backend)
    try:
        tokens = [[rng.randrange(32, 127) for _ in range(length + steps)] for length in PROMPTS]
        tokens[-1][:BEGINNING] = tokens[-2][:BEGINNING]
        prompts = [row[:length] for row, length in zip(tokens, PROMPTS, strict=True)]
        first = [device.alloc_sequence() for _ in prompts[:-1]]
        seqs = [*first]
        rows = device.prefill_all(prompts[:-1], first)
        # Pages of a sequence that has ended are what another may begin with.
        ended = device.alloc_sequence()
        device.prefill(prompts[-2], ended)
        device.release(ended, cache=True)
        seqs.append(device.alloc_sequence())
        rows.append(device.prefill(prompts[-1], seqs[-1]))
        assert device.counts["prefix_tokens"] > 0
        logits = [torch.stack([torch.frombuffer(bytearray(row), dtype=torch.float32) for row in rows])]
        staging = bytearray()
        for step in range(steps):
            given = tuple(row[length + step] for row, length in zip(tokens, PROMPTS, strict=True))
            outcome = device.wait(device.launch(Decode(given, ReadbackKind.HOST), seqs, staging))
            kind = torch.float32 if outcome.itemsize == 4 else torch.bfloat16
            logits.append(torch.frombuffer(bytearray(staging), dtype=kind).view(outcome.rows, -1).float())
        assert device.counts["graph_ok"] == steps
        return torch.stack(logits)
    finally:
        device.close()
