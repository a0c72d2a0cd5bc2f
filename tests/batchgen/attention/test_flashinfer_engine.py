"""Whole runs of both policies with attention by FlashInfer, over a double of its prebuilt objects."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from batchgen.attention import AttentionBackend, TorchPagedAttention
from batchgen.attention.flashinfer.objects import ObjectKernels
from batchgen.attention.flashinfer_paged import FlashInferPagedAttention
from batchgen.engine import EngineOptionError, EngineOptions, build_step_worker, build_worker
from batchgen.models import load_model
from batchgen.requests.results import RunIdentity
from shadow.observe.plans import rows_of
from tests.batchgen.attention import flashinfer_double as double
from tests.batchgen.attention.teacher import teacher_forced
from tests.batchgen.attention.test_torch_paged import make_paged
from tests.batchgen.scheduler.engine.conftest import SCARCE, SMALL, by_id, random_requests

CPU = torch.device("cpu")


def results(policy: str, backend: AttentionBackend | None, **options: object) -> tuple[dict, Counter[str]]:
    """Generated tokens by request, and the counts of the run."""
    chosen = EngineOptions(**{**SMALL, **options, "policy": policy})
    worker = (build_step_worker if policy == "step" else build_worker)(chosen)
    try:
        if backend is not None:
            if policy == "step":
                for forward in (worker.device._decode, worker.device._prefill):
                    forward._attention = backend
            else:
                worker.core_engine.use_attention(backend)
        found = by_id(worker.generate(random_requests(12, sampled=False)))
        return {name: result.token_ids for name, result in found.items()}, Counter(worker.stats())
    finally:
        worker.close()


@pytest.mark.parametrize(("policy", "pages"), [("boundary", 400), ("step", SCARCE)])
def test_a_run_gives_the_text_of_the_reference_and_replays_its_graphs(
    policy: str, pages: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kernels = ObjectKernels(double.use_objects(monkeypatch, tmp_path, (16,)), CPU)
    ours, counts = results(policy, FlashInferPagedAttention(kernels), gpu_kv_pages=pages)
    theirs, expected = results(policy, None, gpu_kv_pages=pages)
    assert ours == theirs
    assert counts["graph_ok"] == expected["graph_ok"] > 0
    # One plan for each forward, whichever way it ran, beside those of the captures.
    assert len(double.BatchDecodeWithPagedKVCacheWrapper.plans) >= counts["decode_steps"] > 0
    assert double.BatchPrefillWithRaggedKVCacheWrapper.plans


@pytest.mark.parametrize("policy", ["boundary", "step"])
def test_the_options_choose_backend_mode_and_objects(
    policy: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = double.use_objects(monkeypatch, tmp_path, (16,), "bfloat16")
    asked = []

    def find(device: torch.device, objects: Path | None) -> ObjectKernels:
        asked.append((device.type, objects))
        assert objects is not None
        return ObjectKernels(objects, device)

    monkeypatch.setattr("batchgen.attention.choice.find_kernels", find)
    options = {
        "attention": "flashinfer",
        "attention_mode": "exact",
        "dtype": "bfloat16",
        "flashinfer_objects": str(folder),
    }
    tokens, counts = results(policy, None, **options)
    assert all(tokens.values()) and counts["graph_ok"] > 0 and asked == [("cpu", folder)]
    wrappers = (double.BatchDecodeWithPagedKVCacheWrapper, double.BatchPrefillWithRaggedKVCacheWrapper)
    assert all(wrapper.plans and all(plan["exact"] for plan in wrapper.plans) for wrapper in wrappers)
    with pytest.raises(EngineOptionError, match=r"model 'tiny': .* not for float16 and 16; build it with"):
        results(policy, None, **{**options, "dtype": "float16"})


@pytest.mark.parametrize("policy", ["boundary", "step"])
def test_a_machine_without_a_gpu_is_told_before_a_model_is_loaded(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    monkeypatch.setattr("batchgen.models.load_model", lambda *args, **kwargs: pytest.fail("loaded"))
    with pytest.raises(EngineOptionError, match="needs a CUDA device, this run is on cpu"):
        results(policy, None, attention="flashinfer", dtype="bfloat16")


def test_results_of_another_attention_are_of_another_run() -> None:
    facts = ("tiny", "tiny", "bfloat16", 0, False, 8)
    torch_run, fast, exact = (
        RunIdentity(*facts, attention=name, attention_mode=mode).fingerprint
        for name, mode in (("torch", "fast"), ("flashinfer", "fast"), ("flashinfer", "exact"))
    )
    assert torch_run == RunIdentity(*facts).fingerprint and len({torch_run, fast, exact}) == 3


def test_a_shadow_reads_the_same_rows_from_this_plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kernels = ObjectKernels(double.use_objects(monkeypatch, tmp_path, (8,)), CPU)
    paged = make_paged([9, 0, 4, 1], 4, 2)
    ours, theirs = (
        rows_of(paged.plan(backend), 4)
        for backend in (FlashInferPagedAttention(kernels), TorchPagedAttention())
    )
    assert ours == theirs


def test_teacher_forced_logits_are_those_of_the_reference(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kernels = ObjectKernels(double.use_objects(monkeypatch, tmp_path, (16,)), CPU)
    ours, theirs = (
        teacher_forced(load_model("tiny", dtype=torch.float32, device=CPU), backend)
        for backend in (FlashInferPagedAttention(kernels), TorchPagedAttention())
    )
    error = (ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)
    assert ours.shape[0] > 20 and float(error.max()) < 1e-4
