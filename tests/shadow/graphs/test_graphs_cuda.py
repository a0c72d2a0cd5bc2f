"""On a GPU: captured graphs against eager runs of the same steps, compared without a host sync."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from reports import from_json
from shadow.cli import main
from shadow.graphs.outputs import Batch, Output

ROOT = Path(__file__).parents[3]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@torch.inference_mode()
def test_comparing_a_step_makes_the_host_wait_for_nothing() -> None:
    replayed = torch.randn(2, 8, 3, 64, device="cuda", dtype=torch.bfloat16)
    eager = replayed[:, :5].clone()
    eager[1, 3, 2, 7] += 1
    output, batch = Output("kv_k", replayed), Batch(0, tuple("abcde"))
    assert len([*output.compare(replayed, eager, batch), *output.drain()]) == 1  # builds the kernels
    torch.cuda.synchronize()
    found = []
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(1, 4):
            found += list(output.compare(replayed, eager, Batch(step, batch.labels)))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    found += list(output.drain())
    assert output.waited == 0
    assert [batch.step for batch, _ in found] == [1, 2, 3]
    for at, rows in found:
        (mismatch,) = output.mismatches(rows, at)
        assert (mismatch.sequence, mismatch.layer, mismatch.legacy.split(", ")[1]) == ("d", 1, "head 2")


@pytest.mark.parametrize("model", ["tiny", "tiny-hybrid"])
def test_replays_on_the_device_stay_within_the_bound_of_their_class(tmp_path: Path, model: str) -> None:
    requests, noise, report = (
        str(ROOT / "examples" / "requests.jsonl"),
        tmp_path / "noise.json",
        tmp_path / "r.json",
    )
    engine = ("--requests", requests, "--model", model, "--page-size", "16", "--device", "cuda")
    assert main(["noise", "--class", "bucket", "--no-power", *engine, "-o", str(noise)]) == 0
    assert main(["graphs", *engine, "--noise", str(noise), "--json", str(report)]) == 0
    facts = {fact.name: fact.value for fact in from_json(report.read_text()).facts}
    assert facts["compared"].endswith("by one kernel, read a step late")
    assert " x replay" in facts["decode forwards"]
