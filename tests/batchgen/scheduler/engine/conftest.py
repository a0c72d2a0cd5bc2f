"""Workers of the step policy on the tiny models, and requests for them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from batchgen.engine import EngineOptions, build_step_worker, build_worker
from batchgen.models.tokenizer import BYTE_SPECIAL_TOKENS
from batchgen.requests.types import GenerationResult, StepParams, TokenizedRequest
from batchgen.sampling import SamplingParams
from batchgen.scheduler.engine.worker import StepWorker

MakeWorker = Callable[..., StepWorker]
AMPLE, SCARCE = 400, 45
SPECIAL = frozenset(BYTE_SPECIAL_TOKENS.values())
SMALL: dict[str, Any] = {
    "model": "tiny",
    "policy": "step",
    "device": "cpu",
    "page_size": 4,
    "max_batch_size": 8,
    "threads": 1,
    "gpu_kv_pages": AMPLE,
}


@pytest.fixture
def make_worker() -> Iterator[MakeWorker]:
    workers: list[StepWorker] = []

    def make(**options: Any) -> StepWorker:
        worker = build_step_worker(EngineOptions(**{**SMALL, **options}))
        workers.append(worker)
        return worker

    yield make
    for worker in workers:
        worker.close()


def request(custom_id: str, prompt: str = "hello", **asked: Any) -> TokenizedRequest:
    """`asked`: fields of SamplingParams or StepParams."""
    own = {name: asked.pop(name) for name in list(asked) if name in StepParams.__dataclass_fields__}
    return TokenizedRequest(
        custom_id, tuple(prompt.encode()), SamplingParams(**{"max_tokens": 12, **asked}), StepParams(**own)
    )


def random_requests(count: int, *, seed: int = 0, sampled: bool = True) -> list[TokenizedRequest]:
    """Prompts of random bytes and lengths; every other one is sampled with a seed of its own."""
    rng = random.Random(seed)
    return [
        TokenizedRequest(
            f"r{i}",
            tuple(rng.randrange(32, 127) for _ in range(rng.randint(1, 40))),
            SamplingParams(
                max_tokens=rng.randint(1, 60), temperature=0.8 if sampled and i % 2 else 0.0, seed=i
            ),
        )
        for i in range(count)
    ]


def by_id(results: Sequence[GenerationResult]) -> dict[str, GenerationResult]:
    found = {result.custom_id: result for result in results}
    assert len(found) == len(results), "a request was answered twice"
    return found


def boundary_results(
    model: str, requests: Sequence[TokenizedRequest], **options: Any
) -> Mapping[str, GenerationResult]:
    worker = build_worker(EngineOptions(**{**SMALL, **options, "model": model, "policy": "boundary"}))
    try:
        return by_id(worker.generate(requests))
    finally:
        worker.close()


def assert_nothing_held(worker: StepWorker, spill_dir: Path | None = None) -> None:
    device = worker.device
    device.check_invariants()
    device.reclaim(device.total_blocks)
    assert device.free_blocks == device.total_blocks
    assert worker.loop.is_idle
    if worker.spill is not None:
        assert worker.spill.usage().entries == worker.spill.usage().bytes == 0
    if spill_dir is not None:
        assert not [path for path in spill_dir.rglob("*") if path.is_file()]
