"""A worker on the `tiny` model with every invariant asserted after every decode step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from batchgen.batchgen_worker import BatchGenWorker
from batchgen.engine import EngineOptions, build_worker
from batchgen.requests.types import GenerationResult, TokenizedRequest
from batchgen.sampling import SamplingParams

MakeWorker = Callable[..., BatchGenWorker]

# Small pages and small buffers, so that short runs cross many boundaries.
SMALL: dict[str, Any] = {
    "model": "tiny",
    "device": "cpu",
    "page_size": 4,
    "initial_gpu_page_buffer": 3,
    "extension_gpu_page_buffer": 2,
    "decision_frequency_pages": 2,
    "max_batch_size": 8,
    "threads": 1,
}


@pytest.fixture(autouse=True)
def assert_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHGEN_DECODE_ASSERT", "1")


@pytest.fixture
def make_worker() -> Iterator[MakeWorker]:
    workers: list[BatchGenWorker] = []

    def make(**options: Any) -> BatchGenWorker:
        worker = build_worker(EngineOptions(**{**SMALL, **options}))
        workers.append(worker)
        return worker

    yield make
    for worker in workers:
        worker.close()


def random_requests(
    count: int,
    *,
    seed: int = 0,
    prompt: tuple[int, int] = (1, 40),
    new: tuple[int, int] = (1, 24),
    **sampling: Any,
) -> list[TokenizedRequest]:
    """Prompts of random bytes and random lengths."""
    rng = random.Random(seed)
    return [
        TokenizedRequest(
            custom_id=f"r{i}",
            prompt_token_ids=tuple(rng.randrange(32, 127) for _ in range(rng.randint(*prompt))),
            sampling=SamplingParams(**{"max_tokens": rng.randint(*new), **sampling}),
        )
        for i in range(count)
    ]


def by_id(results: Sequence[GenerationResult]) -> dict[str, GenerationResult]:
    found = {result.custom_id: result for result in results}
    assert len(found) == len(results), "a request was answered twice"
    return found


def token_ids(results: Sequence[GenerationResult]) -> dict[str, tuple[int, ...]]:
    return {custom_id: result.token_ids for custom_id, result in by_id(results).items()}


def assert_nothing_held(worker: BatchGenWorker) -> None:
    """After a batch: no page, slot, buffer or index is anybody's."""
    view = worker.core_engine.host_paged_kv_worker_view
    assert view.get_stats().num_used_pages == 0
    assert view.sequence_ids() == []
    assert worker._get_gpu_kv_free_pages() == 0 and not worker._sequences_with_gpu_kv
    assert worker.core_engine.state_slot_pool.num_used == 0
    assert worker._local_to_uuid_map == {} and worker.query_book == {}
    assert len(worker._free_pool_slots) == worker.args.max_pool_size
    if hasattr(worker, "_buffer_pool"):
        assert worker._buffer_pool.in_use == 0
    assert worker._pending_kv_append_tasks == []
