"""Plans carried out on a live worker: all checks before the first effect, one effect after the other, in order."""

from __future__ import annotations

from typing import Any

from batchgen.worker.backends.kv import GpuKv, HostKv
from batchgen.worker.kv_plans import (
    AllocateGpu,
    AllocateHost,
    AllocPlan,
    Count,
    EvictionPlan,
    Load,
    LoadPages,
    Operation,
    RebuildTable,
    ReleaseGpu,
    ReleaseStateSlots,
    Reserve,
    SequenceState,
    SetField,
    SetStatus,
)
from batchgen.worker.kv_snapshot import gpu_pool


class StalePlan(RuntimeError):
    """The plan was made for another state than the worker's of now. Nothing was changed: plan again."""


def apply_allocation(worker: Any, plan: AllocPlan) -> bool:
    """Whether the pages were there. StalePlan; KVExhausted where another rank took host pages in between;
    RuntimeError where the pool gives other GPU pages than its snapshot promised: some things are done by then."""
    _carry_out(worker, plan)
    return plan.granted


def apply_eviction(worker: Any, plan: EvictionPlan) -> bool:
    """Whether decoding is to pause. StalePlan."""
    _carry_out(worker, plan)
    return plan.pause


def _carry_out(worker: Any, plan: AllocPlan | EvictionPlan) -> None:
    _refuse_if_stale(worker, plan)
    gpu_kv, host_kv = GpuKv(lambda: worker), HostKv(lambda: worker)
    for operation in plan.operations:
        _do(worker, gpu_kv, host_kv, operation)


def _refuse_if_stale(worker: Any, plan: AllocPlan | EvictionPlan) -> None:
    planned, now = plan.snapshot.gpu, gpu_pool(worker)
    if planned != now:
        was = "no pool" if planned is None else f"generation {planned.generation} of pool {planned.name!r}"
        is_ = "none" if now is None else f"generation {now.generation}"
        raise StalePlan(f"the plan was made for {was}, there is {is_}: plan again")
    for state in plan.snapshot.sequences:
        current = worker.global_batch.sequences.get(state.uuid)
        if current is None or SequenceState.of(current) != state:
            raise StalePlan(f"sequence {state.uuid} is not what it was when the plan was made: plan again")


def _do(worker: Any, gpu_kv: GpuKv, host_kv: HostKv, operation: Operation) -> None:
    match operation:
        case AllocateGpu(uuid, pages):
            given = gpu_kv.allocate_pages(uuid, len(pages))
            if tuple(given) != pages:
                raise RuntimeError(f"the pool gave sequence {uuid} pages {given}, planned were {list(pages)}")
        case ReleaseGpu(uuid):
            gpu_kv.release_pages(uuid)
        case AllocateHost(uuid, n):
            host_kv.allocate_pages(uuid, n)
        case Load(global_ids):
            worker._load_host_kv_to_gpu(worker.gpu_paged_kv_cache_manager, list(global_ids))
        case LoadPages(uuid, pages):
            host_kv.load_to_gpu_async(uuid, list(pages)).wait()
        case RebuildTable(global_ids):
            worker.gpu_paged_kv_cache_manager.rebuild_page_table(list(global_ids))
        case SetField(uuid, field, value):
            setattr(worker.global_batch.get_sequence(uuid), field, value)
        case SetStatus(uuid, status):
            worker.global_batch.update_status(uuid, status)
        case Reserve(global_idx, True):
            worker._sequences_with_gpu_kv.add(global_idx)
        case Reserve(global_idx, False):
            worker._sequences_with_gpu_kv.discard(global_idx)
        case ReleaseStateSlots(global_ids):
            worker.core_engine.state_slot_pool.release(list(global_ids))
        case Count(counter, by):
            worker.counters[counter] += by
