"""Relative L2 of unequal tensors against `torch.equal` of equal ones: same shape, same threads, same run."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch

from benchmarks.ratios import Ratio, tell
from shadow.numerics import from_torch, score_rows

TURNS = 4
LOGITS, HEADS = (64, 151936), (4096, 32, 128)


def fastest(*actions: Callable[[], object]) -> list[float]:
    """Milliseconds of the fastest run of each, in turns of ten: a busy machine slows all of them.

    Threads of OpenMP spin for a while after their work; each turn begins when they have let go of the cores.
    """
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(TURNS):
        for action, found in zip(actions, times, strict=True):
            time.sleep(0.3)
            for _ in range(10):
                start = time.perf_counter()
                action()
                found.append(time.perf_counter() - start)
    return [1000 * min(found) for found in times]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [LOGITS, HEADS], ids=["logits", "heads"])
def test_scores_against_torch_equal(shape: tuple[int, ...], dtype: torch.dtype, threads: int) -> None:
    """Bar: at least 0.8 of the throughput of `torch.equal`; bfloat16 on two threads: see docs/noise.md."""
    generator = torch.Generator().manual_seed(0)
    legacy = torch.randn(shape, generator=generator)
    candidate = (legacy * (1 + 1e-2 * torch.randn(shape, generator=generator))).to(dtype)
    legacy = legacy.to(dtype)
    same, ours, theirs = legacy.clone(), from_torch(legacy), from_torch(candidate)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        equal, unequal, bits = fastest(
            lambda: torch.equal(legacy, same),
            lambda: score_rows(ours, theirs, threads=threads),
            lambda: score_rows(ours, from_torch(same), threads=threads),
        )
    finally:
        torch.set_num_threads(before)
    gigabytes = 2 * legacy.numel() * legacy.element_size() / 1e6
    ratio = tell(
        Ratio(
            f"scores of {list(shape)} {str(dtype).removeprefix('torch.')}, threads: {threads}",
            equal / unequal,
            "torch.equal of equal tensors",
            bar=0.8 if dtype is torch.float32 or threads == 1 else 0.6,
            figures={
                "torch.equal GB/s": gigabytes / equal,
                "scores GB/s": gigabytes / unequal,
                "scores of equal GB/s": gigabytes / bits,
            },
        )
    )
    assert ratio.holds
