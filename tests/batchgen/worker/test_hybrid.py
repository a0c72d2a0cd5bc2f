"""The worker's own policy on a model with recurrent states: held, evicted and replayed sequences go on as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchgen.engine import EngineOptionError

from .conftest import MakeWorker, assert_nothing_held, random_requests, token_ids
from .launched import results, run

HYBRID: dict[str, Any] = {"model": "tiny-hybrid", "row_exact": True}
# Pools that put sequences on hold, evict them, and end decode phases for a prefill.
TIGHT: dict[str, Any] = {
    "gpu_kv_pages": 40,
    "host_kv_pages": 45,
    "host_kv_chunk_size": 4,
    "adaptive_host_kv_chunk": False,
    "host_kv_eviction_watermark": 0,
    "host_kv_watermark": 20,
}


def test_tight_pools_give_the_tokens_of_roomy_ones(make_worker: MakeWorker) -> None:
    requests = random_requests(24, seed=7, new=(4, 40))
    expected = token_ids(make_worker(**HYBRID).generate(requests))
    tight = make_worker(**HYBRID, **TIGHT)
    for _ in range(2):  # the second batch numbers its sequences like the first
        assert token_ids(tight.generate(requests)) == expected
        assert_nothing_held(tight)
        pool = tight.core_engine.state_slot_pool
        assert pool.num_kept == 0
        pool.check_invariants()
    for name in ("holds", "reloads", "evictions", "re_prefills", "async_loads", "graph_steps"):
        assert tight.stats()[name] > 0, name
    assert tight.stats()["prefill_phases"] > 2


def test_batched_recurrence_serves_the_worker_and_changes_no_token(make_worker: MakeWorker) -> None:
    requests = random_requests(12, seed=3, new=(4, 40))
    worker = make_worker(**HYBRID)
    with_it = token_ids(worker.generate(requests))
    counts = worker.model.recurrence_counts()
    assert counts.batched > 0 and sum(counts.fallback.values()) > 0
    assert counts.batched_share is not None and 0 < counts.batched_share < 1
    worker.model.recurrence.batched = False
    assert token_ids(worker.generate(requests)) == with_it
    assert worker.model.recurrence_counts().batched == counts.batched


@pytest.mark.parametrize("graphs", [True, False])
def test_a_replay_compared_with_an_eager_run_advances_states_once(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch, graphs: bool
) -> None:
    requests = random_requests(10, seed=5, new=(4, 24))
    expected = token_ids(make_worker(**HYBRID).generate(requests))
    monkeypatch.setenv("BATCHGEN_DECODE_GRAPH_COMPARE", "1")
    monkeypatch.setenv("BATCHGEN_DECODE_GRAPH_COMPARE_FAIL", "1")
    worker = make_worker(**HYBRID, cuda_graphs=graphs)
    assert token_ids(worker.generate(requests)) == expected
    assert (worker.stats().get("graph_compares", 0) > 0) == graphs


def test_several_nodes_are_refused_before_anything_runs(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("batchgen.engine._join_process_group", lambda rank, world_size: None)
    monkeypatch.setattr("batchgen.batchgen_worker.NUM_GPUS_PER_NODE", 1)
    with pytest.raises(
        EngineOptionError, match="cannot move between nodes: 2 ranks do not fit one node of 1"
    ):
        make_worker(**HYBRID)


@pytest.mark.slow
@pytest.mark.multirank
def test_two_ranks_of_a_node_answer_like_one(tmp_path: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    with requests.open("w", encoding="utf-8") as stream:
        for i in range(24):
            body = {
                "model": "tiny-hybrid",
                "prompt": f"request number {i}: " + "ab" * (i * 5 % 23),
                "max_tokens": 4 + (i * 7) % 40,
                "temperature": 0 if i % 3 else 0.8,
                "seed": i,
            }
            line = {"custom_id": f"h{i}", "method": "POST", "url": "/v1/completions", "body": body}
            stream.write(json.dumps(line) + "\n")
    options = ["--model", "tiny-hybrid", "--page-size", "4", "--row-exact"]
    small = ["--gpu-pages", "24", "--host-pages", "60", "--max-batch", "4"]
    asserts = {"BATCHGEN_DECODE_ASSERT": "1"}
    run(requests, tmp_path / "one.jsonl", *options, per_node=8, **asserts)
    summary = run(requests, tmp_path / "two.jsonl", *options, *small, ranks=2, per_node=2, **asserts)
    assert results(tmp_path / "two.jsonl") == results(tmp_path / "one.jsonl")
    assert summary["engine"]["holds"] > 0, summary
