"""Compare mode of slice 5 over everything that its methods do: each method and each branch, on one pool and on two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from batchgen import batchgen_worker
from batchgen.batchgen_worker import BatchGenWorker
from shadow.experiment import Flags, Gate, Verdict

from .conftest import MakeWorker, random_requests, token_ids
from .test_kv_plans import CASES, actions, outcome
from .test_kv_section import stopped_at

SMALL_POOLS = {"gpu_kv_pages": 60, "host_kv_pages": 120, "max_batch_size": 4}


@pytest.fixture
def gate() -> Iterator[Gate]:
    """The worker's own, comparing, with the report that the environment asks for; as it was afterwards."""
    made = batchgen_worker._KV_GATE
    made.configure(replace(Flags.from_env(made.prefix, None, made.parts), compare=True, branches=True))
    yield made
    made.close()
    made.reload({})


def ask(worker: BatchGenWorker, name: str, *arguments: object) -> None:
    outcome(lambda: getattr(worker, name)(*arguments))


def what_runs_do_not_do(worker: BatchGenWorker, batch: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequences of other ranks, pools that are full or not there, moves between nodes."""
    uuids = [worker._get_sequence_by_local(i).uuid for i in batch]
    waiting = [s.uuid for s in worker.global_batch if s.status.name in ("PREFILLED", "ON_HOLD")]
    local_waiting = [worker._uuid_to_local_map[uuid] for uuid in waiting if uuid in worker._uuid_to_local_map]
    ask(worker, "_get_sequence_token_budget", 999)
    ask(worker, "_release_kda_state_slots", [999])
    worker._get_sequence_by_local(batch[0]).gpu_pages_allocated += 9
    ask(worker, "_extend_gpu_kv_allocation", uuids)
    worker._get_sequence_by_local(batch[0]).gpu_pages_allocated -= 9
    with monkeypatch.context() as patch:
        patch.setattr(worker, "_uuid_to_local_map", {})
        ask(worker, "_grow_host_kv", uuids[:1], [1])
        ask(worker, "_extend_gpu_kv_allocation", uuids)
        ask(worker, "_put_sequences_onhold", waiting[:1])
    pool = worker.gpu_paged_kv_cache_manager
    with monkeypatch.context() as patch:
        patch.setattr(batchgen_worker, "NUM_GPUS_PER_NODE", 1)
        patch.setattr(worker, "world_size", 2)
        for used, cost in ((60, 3), (60, 500), (8, 3)):
            here = {"node_id": 0, "num_used_pages": used, "num_total_pages": 120}
            there = {"node_id": 1, "num_used_pages": 4, "num_total_pages": 120}
            ask(worker, "_plan_moves", [(here, dict.fromkeys([*waiting, *uuids], cost)), (there, {})])
    pool.allocate_pages_for_sequences([99], [4 * pool.get_stats().num_free_pages])
    ask(worker, "_allocate_gpu_kv_two_page_buffer", local_waiting[:1])
    for i in batch:
        worker._get_sequence_by_local(i).gpu_pages_allocated = 0
    ask(worker, "_extend_gpu_kv_allocation", uuids)
    pool.free_pages_for_sequences([99])
    with monkeypatch.context() as patch:
        patch.setattr(worker.core_engine, "host_paged_kv_worker_view", None)
        ask(worker, "_get_host_kv_free_pages")
        ask(worker, "_get_host_kv_utilization")
    with monkeypatch.context() as patch:
        patch.setattr(worker, "query_book", {})
        ask(worker, "_get_sequence_token_budget", 0)
    with monkeypatch.context() as patch:
        patch.setattr(worker.core_engine, "state_slot_pool", None)
        ask(worker, "_release_kda_state_slots", [0])
    with monkeypatch.context() as patch:
        patch.setattr(worker, "_has_queued_work", lambda: False)
        for evicting in (False, True):
            patch.setattr(worker.args, "enable_host_kv_eviction", evicting)
            ask(worker, "_decide_watermark_trigger", {0: {"free_percent": 99}})


@pytest.mark.slow
def test_every_method_and_every_branch_is_compared_and_none_parts(
    gate: Gate, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in ("tiny", "tiny-dual"):
        worker = make_worker(model=model, **SMALL_POOLS)
        with stopped_at(worker, 6, 9, seed=2) as batch:
            what_runs_do_not_do(worker, batch, monkeypatch)
        for case in CASES:
            worker = make_worker(model=model, **SMALL_POOLS)
            with stopped_at(worker, 6, 9, seed=2) as batch:
                ask(worker, case.split()[0], *actions(worker, batch)[case])
    worker = make_worker(gpu_kv_pages=24, host_kv_pages=30, max_batch_size=4, host_kv_chunk_size=4)
    token_ids(worker.generate(random_requests(16, seed=3, prompt=(4, 30), new=(8, 40))))
    summary = gate.summary()
    assert (summary.verdict, summary.diverged, summary.faults, summary.unreached) == (Verdict.EQUAL, 0, 0, ())
    counts = dict(summary.methods)
    assert all(count.compared for count in counts.values()) and len(counts) == 17
    assert {name: count.unseen for name, count in counts.items() if count.unseen} == {}
