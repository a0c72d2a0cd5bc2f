"""The worker as a plan sees it, read once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from batchgen.kv import DualKVCacheCoordinator, GPUPagedKVCacheManager
from batchgen.sequence import SequenceEntry
from batchgen.worker.kv_plans import GpuPool, HostPool, KvConfig, KvSnapshot, SequenceState


def snapshot(worker: Any, sequences: Iterable[SequenceEntry]) -> KvSnapshot:
    """With these sequences and no others; pools whole."""
    args = worker.args
    chosen = tuple(sequences)
    slots = worker.core_engine.state_slot_pool
    return KvSnapshot(
        config=KvConfig(
            page_size=worker.PAGE_SIZE,
            enable_host_kv_eviction=args.enable_host_kv_eviction,
            host_kv_watermark=args.host_kv_watermark,
            host_kv_eviction_watermark=args.host_kv_eviction_watermark,
        ),
        rank=worker.rank,
        world_size=worker.world_size,
        sequences=tuple(map(SequenceState.of, chosen)),
        local=tuple(
            (sequence.uuid, worker._uuid_to_local_map[sequence.uuid])
            for sequence in chosen
            if sequence.uuid in worker._uuid_to_local_map
        ),
        gpu=gpu_pool(worker),
        host=host_pool(worker),
        reserved=frozenset(worker._sequences_with_gpu_kv),
        with_state_slot=frozenset(
            s.global_idx for s in chosen if slots is not None and slots.has(s.global_idx)
        ),
    )


def gpu_pool(worker: Any) -> GpuPool | None:
    """None where there is no live one. Both pools of a dual manager hold the same pages: the primary's."""
    manager = worker.gpu_paged_kv_cache_manager
    if manager is None or not manager.is_initialized:
        return None
    pool: GPUPagedKVCacheManager = manager.primary if isinstance(manager, DualKVCacheCoordinator) else manager
    return GpuPool.of(pool.ledger, pool.config.max_slots)


def host_pool(worker: Any) -> HostPool | None:
    view = worker.core_engine.host_paged_kv_worker_view
    if view is None:
        return None
    stats = view.get_stats()
    held = tuple((index, view.page_count(index)) for index in view.sequence_ids())
    return HostPool(view.config.name, stats.num_free_pages, stats.num_used_pages, stats.num_total_pages, held)
