"""Slice 5: a plan made from a snapshot and carried out leaves the worker as its own methods leave it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from batchgen.batchgen_worker import BatchGenWorker
from batchgen.continuous_batching import NodeHostStats
from batchgen.engine import EngineOptions, build_worker
from batchgen.sequence import SequenceStatus
from batchgen.worker.backends.kv import GpuKv, HostKv
from batchgen.worker.kv_apply import StalePlan, apply_allocation, apply_eviction
from batchgen.worker.kv_manager import KVCacheManager
from batchgen.worker.kv_native import KvNative
from batchgen.worker.kv_plans import (
    Allocation,
    AllocRequest,
    Eviction,
    EvictionRequest,
    SequenceState,
)
from batchgen.worker.kv_snapshot import gpu_pool, host_pool, snapshot
from shadow.digest import page_digests

from .conftest import SMALL, MakeWorker, random_requests, token_ids
from .test_kv_section import stopped_at

PLANNED = (
    "_reserve_whole_budget",
    "_allocate_gpu_kv_two_page_buffer",
    "_extend_gpu_kv_allocation",
    "_grow_host_kv",
    "_release_gpu_kv_pages",
    "_put_sequences_onhold",
    "_decide_watermark_trigger",
    "_host_pages_kept_back",
    "_plan_moves",
)


def state(worker: BatchGenWorker) -> dict[str, Any]:
    """Everything that KV methods may change."""
    manager = worker.gpu_paged_kv_cache_manager
    view = worker.core_engine.host_paged_kv_worker_view
    pools = [getattr(manager, "primary", manager), getattr(manager, "auxiliary", None)]
    found: dict[str, Any] = {
        "sequences": {s.uuid: SequenceState.of(s) for s in worker.global_batch},
        "gpu": dataclasses.replace(gpu_pool(worker), generation=0),
        "host": host_pool(worker),
        "host pages": {g: view.build_page_table([g]).tolist() for g in view.sequence_ids()},
        "reserved": set(worker._sequences_with_gpu_kv),
        "counters": {k: v for k, v in worker.counters.items() if v},
        "rows": list(manager.slot_to_seq_id),
        "table": manager.gpu_table.tolist(),
        "indexes": worker.global_batch.validate_indexes(),
    }
    view_tasks = getattr(getattr(view, "primary", view), "_tasks", None)
    if view_tasks is not None:
        view_tasks.drain()
    for pool in filter(None, pools):
        for index, pages in pool.ledger.sequences.items():
            tokens = (
                worker.global_batch.get_sequence(worker._global_to_uuid[index]).current_context_length - 1
            )
            found[f"{pool.config.name} {index}"] = page_digests(pool.k_cache, pages, tokens).tolist()
    return found


@contextmanager
def twins(
    model: str, step: int, count: int, seed: int
) -> Iterator[tuple[BatchGenWorker, BatchGenWorker, list[int]]]:
    """Two workers that have done the same, in mid-decode, and the local indices of their rows."""
    options = EngineOptions(
        **{**SMALL, "model": model, "gpu_kv_pages": 60, "host_kv_pages": 120, "max_batch_size": 4}
    )
    with ExitStack() as stack:
        pair = build_worker(options), build_worker(options)
        for worker in pair:
            stack.callback(worker.close)
        ours, theirs = (stack.enter_context(stopped_at(worker, step, count, seed=seed)) for worker in pair)
        assert ours == theirs and state(pair[0]) == state(pair[1])
        yield *pair, ours


@dataclasses.dataclass(frozen=True)
class Raises:
    type: type
    message: str


def outcome(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except (KeyError, ValueError, RuntimeError) as error:
        return Raises(type(error), str(error))


def actions(worker: BatchGenWorker, batch: list[int]) -> dict[str, tuple[Any, ...]]:
    """Arguments of each method that changes something, by its name and what is special about them."""
    uuids = [worker._get_sequence_by_local(i).uuid for i in batch]
    waiting = [
        s.uuid
        for s in worker.global_batch
        if s.status in (SequenceStatus.PREFILLED, SequenceStatus.ON_HOLD)
        and s.uuid in worker._uuid_to_local_map
    ]
    local_waiting = [worker._uuid_to_local_map[uuid] for uuid in waiting]
    shares = [
        ({"node_id": 0, "num_used_pages": 60, "num_total_pages": 120}, dict.fromkeys(waiting, 3)),
        ({"node_id": 1, "num_used_pages": 4, "num_total_pages": 120}, {}),
    ]
    return {
        "_release_gpu_kv_pages": (batch[:2],),
        "_release_gpu_kv_pages twice": ([batch[0], batch[0]],),
        "_release_gpu_kv_pages without": (local_waiting[:1] + batch[:1],),
        "_put_sequences_onhold": (uuids[1:],),
        "_put_sequences_onhold illegal": (waiting[:1],),
        "_extend_gpu_kv_allocation": (uuids,),
        "_grow_host_kv": (uuids[:2], [1, 2]),
        "_grow_host_kv too much": (uuids[:2], [1, 500]),
        "_allocate_gpu_kv_two_page_buffer": (local_waiting[:1],),
        "_allocate_gpu_kv_two_page_buffer unloaded": (local_waiting[:1], False),
        "_allocate_gpu_kv_two_page_buffer nothing": ([],),
        "_allocate_gpu_kv_two_page_buffer all": (local_waiting,),
        "_allocate_gpu_kv_two_page_buffer again": (batch[:1],),
        "_reserve_whole_budget": (
            local_waiting[:1],
            worker._compute_host_kv_sequence_tokens(local_waiting[:1]),
        ),
        "_reserve_whole_budget too much": (local_waiting, [4 * 40] * len(local_waiting)),
        "_decide_watermark_trigger": ({0: {"free_percent": 71}},),
        "_decide_watermark_trigger low": ({0: {"free_percent": 70}, 1: {"free_percent": 3}},),
        "_host_pages_kept_back": ([NodeHostStats(0, 7, 120), NodeHostStats(1, 0, 0)],),
        "_plan_moves": (shares,),
    }


CASES = (
    *("_release_gpu_kv_pages", "_release_gpu_kv_pages twice", "_release_gpu_kv_pages without"),
    *("_put_sequences_onhold", "_put_sequences_onhold illegal", "_extend_gpu_kv_allocation"),
    *("_grow_host_kv", "_grow_host_kv too much", "_allocate_gpu_kv_two_page_buffer"),
    *("_allocate_gpu_kv_two_page_buffer unloaded", "_allocate_gpu_kv_two_page_buffer nothing"),
    *("_allocate_gpu_kv_two_page_buffer all", "_allocate_gpu_kv_two_page_buffer again"),
    *("_reserve_whole_budget", "_reserve_whole_budget too much"),
    *("_decide_watermark_trigger", "_decide_watermark_trigger low", "_plan_moves"),
    "_host_pages_kept_back",
)


@pytest.mark.parametrize("model", ["tiny", "tiny-dual"])
@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    case=st.lists(st.sampled_from(CASES), min_size=1, max_size=4),
    step=st.integers(1, 30),
    seed=st.integers(0, 5),
    count=st.integers(5, 12),
)
@example(
    case=["_reserve_whole_budget"], step=25, seed=5, count=5
)  # no sequence waits: for none nothing is reserved
def test_a_plan_carried_out_leaves_what_the_legacy_method_leaves(
    model: str, case: list[str], step: int, seed: int, count: int
) -> None:
    with twins(model, step, count, seed) as (legacy, native, batch):
        for name in case:
            method = name.split()[0]
            arguments = actions(legacy, batch)[name]
            before = state(native)
            foreseen = outcome(partial(KvNative.foresee, legacy, method, arguments, {}))
            assert state(legacy) == before, name
            expected = outcome(partial(getattr(legacy, method), *arguments))
            found = outcome(partial(getattr(KvNative.for_worker(native), method), *arguments))
            if isinstance(foreseen, Raises):
                assert foreseen == expected, name
            else:
                assert foreseen.value == expected and foreseen.found() == foreseen.expected, name
            assert found == expected, name
            if isinstance(expected, Raises):
                # The legacy may raise half-way; a plan that cannot be made has no effect.
                assert state(native) == before, name
                return
            assert state(native) == state(legacy), name


@pytest.mark.parametrize("model", ["tiny", "tiny-dual", "tiny-hybrid"])
def test_a_run_by_plans_gives_the_same_tokens_and_leaves_the_same_pools(
    model: str, make_worker: MakeWorker
) -> None:
    options = {"model": model, "gpu_kv_pages": 40, "host_kv_pages": 80, "max_batch_size": 4}
    requests = random_requests(24, seed=3, prompt=(4, 30), new=(8, 40))
    legacy, native = make_worker(**options), make_worker(**options)
    expected = token_ids(legacy.generate(requests))
    for name in PLANNED:
        setattr(native, name, getattr(KvNative.for_worker(native), name))
    assert token_ids(native.generate(requests)) == expected
    counted = {k: v for k, v in legacy.counters.items() if v}
    assert counted == {k: v for k, v in native.counters.items() if v}
    assert min(counted[name] for name in ("holds", "reloads", "gpu_pages_extended")) > 0
    assert (gpu_pool(native), host_pool(native)) == (gpu_pool(legacy), host_pool(legacy))


def test_a_plan_is_made_without_touching_anything() -> None:
    with twins("tiny", 4, 8, 1) as (worker, _, batch):
        before, uuids = state(worker), [worker._get_sequence_by_local(i).uuid for i in batch]
        manager = KVCacheManager(gpu_kv=GpuKv(lambda: worker), host_kv=HostKv(lambda: worker))
        seen = snapshot(worker, [worker.global_batch.get_sequence(uuid) for uuid in uuids])
        release = manager.plan_eviction(EvictionRequest(seen, Eviction.RELEASE, local_ids=tuple(batch)))
        extend = manager.plan_allocation(AllocRequest(seen, Allocation.EXTENSION, uuids=tuple(uuids)))
        assert release.operations and extend.operations and state(worker) == before
        assert hash(release) == hash(dataclasses.replace(release))  # frozen all the way down


def test_a_plan_is_carried_out_once() -> None:
    with twins("tiny", 4, 8, 1) as (worker, _, batch):
        manager = KVCacheManager(gpu_kv=GpuKv(lambda: worker), host_kv=HostKv(lambda: worker))
        entries = [worker._get_sequence_by_local(i) for i in batch]
        plan = manager.plan_eviction(
            EvictionRequest(snapshot(worker, entries), Eviction.RELEASE, local_ids=tuple(batch[:1]))
        )
        apply_eviction(worker, plan)
        after = state(worker)
        with pytest.raises(StalePlan, match="generation"):
            apply_eviction(worker, plan)
        assert state(worker) == after


def test_pages_that_are_not_the_planned_ones_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with twins("tiny", 4, 8, 1) as (worker, _, batch):
        manager = KVCacheManager(gpu_kv=GpuKv(lambda: worker), host_kv=HostKv(lambda: worker))
        entries = [worker._get_sequence_by_local(i) for i in batch]
        request = AllocRequest(
            snapshot(worker, entries), Allocation.EXTENSION, uuids=tuple(s.uuid for s in entries)
        )
        plan = manager.plan_allocation(request)
        monkeypatch.setattr(GpuKv, "allocate_pages", lambda self, uuid, n: [-1] * n)
        with pytest.raises(RuntimeError, match=r"the pool gave sequence .* pages \[-1.*planned were \["):
            apply_allocation(worker, plan)


def test_a_plan_for_a_sequence_that_has_moved_on_is_refused_before_anything_is_done() -> None:
    with twins("tiny", 4, 8, 1) as (worker, _, batch):
        manager = KVCacheManager(gpu_kv=GpuKv(lambda: worker), host_kv=HostKv(lambda: worker))
        entries = [worker._get_sequence_by_local(i) for i in batch]
        request = AllocRequest(
            snapshot(worker, entries), Allocation.EXTENSION, uuids=tuple(s.uuid for s in entries)
        )
        plan = manager.plan_allocation(request)
        entries[0].decoded_length += 1
        before = state(worker)
        with pytest.raises(StalePlan, match=f"sequence {entries[0].uuid}"):
            apply_allocation(worker, plan)
        assert state(worker) == before
        entries[0].decoded_length -= 1
        assert apply_allocation(worker, plan)


def test_the_handler_is_the_seeds() -> None:
    made = str(inspect.signature(KVCacheManager.__init__))
    assert made == "(self, *, gpu_kv: 'GpuKvBackend', host_kv: 'HostKvBackend') -> 'None'"
    planners = {
        name: getattr(KVCacheManager, name) for name in ("plan_allocation", "plan_eviction", "plan_migration")
    }
    assert {list(inspect.signature(planner).parameters)[1] for planner in planners.values()} == {"req"}


@pytest.mark.parametrize("model", ["tiny", "tiny-dual"])
def test_one_sequence_is_loaded_into_its_pages_as_the_worker_loads_it(model: str) -> None:
    with twins(model, 6, 9, 2) as (legacy, native, batch):
        for worker in (legacy, native):
            worker._put_sequences_onhold([worker._get_sequence_by_local(batch[-1]).uuid])
        assert legacy._allocate_gpu_kv_two_page_buffer(batch[-1:])
        assert native._allocate_gpu_kv_two_page_buffer(batch[-1:], load_from_host=False)
        sequence = native._get_sequence_by_local(batch[-1])
        assert state(native) != state(legacy)
        pages = native.gpu_paged_kv_cache_manager._sequences[sequence.global_idx]
        HostKv(lambda: native).load_to_gpu_async(sequence.uuid, pages).wait()
        native.counters["kv_loads"] += 1
        assert state(native) == state(legacy)
