"""Decode throughput of the engine on the real model against Hugging Face `generate`, in turns, in one run."""

from __future__ import annotations

import os

from batchgen.bench import run_bench
from benchmarks.ratios import Ratio, tell


def test_a_decode_step_against_hugging_face(monkeypatch) -> None:
    # A random prompt makes the model repeat itself; the run must not end for that.
    monkeypatch.setenv("BATCHGEN_REP_DETECTION", "0")
    found = run_bench(
        "smollm2",
        batch=16,
        prompt_tokens=64,
        new_tokens=48,
        repeat=3,
        threads=os.cpu_count(),
        with_hf=True,
        note=lambda text: None,
    )
    assert found.speedup is not None and found.hf_step_ms is not None
    figures = {"own ms/step": found.step_ms, "Hugging Face ms/step": found.hf_step_ms}
    name = "decode of smollm2, batch 16"
    tell(Ratio(name, found.speedup, "Hugging Face generate's tokens/s", figures=figures))
    floor = Ratio(
        f"{name}, step",
        found.step_over_floor,
        "reading the weights once",
        at_least=False,
        figures={"floor ms": found.floor_step_ms, "attention's share": found.attention_share},
    )
    tell(floor)
    assert found.speedup > 0 and found.step_over_floor > 0
