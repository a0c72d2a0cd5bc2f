"""The step policy on a CUDA device."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.batchgen.scheduler.engine.conftest import (
    SCARCE,
    MakeWorker,
    assert_nothing_held,
    by_id,
    random_requests,
)


@pytest.mark.gpu
@pytest.mark.parametrize("spilling", [False, True])
@pytest.mark.parametrize("model", ["tiny", "tiny-dual", "tiny-hybrid"])
def test_a_scarce_pool_on_a_gpu_changes_nothing(
    make_worker: MakeWorker, tmp_path: Path, model: str, spilling: bool
) -> None:
    requests = random_requests(24)
    options = {"model": model, "device": "cuda", "row_exact": True}
    folder = tmp_path if spilling else None
    scarce = make_worker(**options, gpu_kv_pages=SCARCE, spill_dir=None if folder is None else str(folder))
    assert by_id(scarce.generate(requests)) == by_id(make_worker(**options).generate(requests))
    assert scarce.stats()["preempted"] > 0
    assert_nothing_held(scarce, folder)
