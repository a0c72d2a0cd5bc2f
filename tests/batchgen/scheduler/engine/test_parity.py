"""The step policy writes what the boundary policy writes, and a pool that is too small changes nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchgen.requests.types import GenerationResult, TokenizedRequest
from batchgen.sampling import SamplingParams
from tests.batchgen.scheduler.engine.conftest import (
    SCARCE,
    SPECIAL,
    MakeWorker,
    assert_nothing_held,
    boundary_results,
    by_id,
    random_requests,
)

MODELS = ("tiny", "tiny-dual", "tiny-hybrid")


@pytest.mark.parametrize("row_exact", [True, False])
@pytest.mark.parametrize("model", MODELS)
def test_greedy_text_is_that_of_the_boundary_policy(
    make_worker: MakeWorker, model: str, row_exact: bool
) -> None:
    """But for outputs with special tokens: to the boundary policy they are tokens like any other."""
    requests = random_requests(24, sampled=False)
    expected = boundary_results(model, requests, row_exact=row_exact)
    found = by_id(make_worker(model=model, row_exact=row_exact).generate(requests))
    plain = [r for r in expected.values() if not SPECIAL.intersection(r.token_ids)]
    assert len(plain) >= 8
    for result in plain:
        assert _said(found[result.custom_id]) == _said(result)


def _said(result: GenerationResult) -> tuple[object, ...]:
    return result.token_ids, result.text, result.finish_reason, result.prompt_tokens


@pytest.mark.parametrize("spill", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_a_scarce_pool_changes_nothing(
    make_worker: MakeWorker, tmp_path: Path, model: str, spill: bool
) -> None:
    requests = random_requests(24)
    ample = make_worker(model=model, row_exact=True)
    folder = tmp_path if spill else None
    scarce = make_worker(
        model=model, row_exact=True, gpu_kv_pages=SCARCE, spill_dir=None if folder is None else str(folder)
    )
    assert by_id(ample.generate(requests)) == by_id(scarce.generate(requests))
    stats = scarce.stats()
    assert stats["preempted"] > 1
    assert (stats["spilled"] > 0) is spill and (stats["requeued"] > 0) is not spill
    assert stats["swapped_in"] == stats["spilled"] and stats["resumed"] == stats["requeued"]
    assert ample.stats()["preempted"] == 0
    assert_nothing_held(scarce, folder)


def test_smollm2_says_under_both_policies_the_same(make_worker: MakeWorker) -> None:
    options = {"model": "smollm2", "page_size": 16, "gpu_kv_pages": 40}
    worker = make_worker(**options)
    questions = ("What is the capital of France?", "Name three colours.", "Why is the sky blue?")
    requests = [
        TokenizedRequest(
            question,
            tuple(worker.tokenizer.encode_chat([{"role": "user", "content": question}])),
            SamplingParams(max_tokens=16),
        )
        for question in questions
    ]
    found = by_id(worker.generate(requests))
    expected = boundary_results(requests=requests, **options)
    assert {i: _said(r) for i, r in found.items()} == {i: _said(r) for i, r in expected.items()}
