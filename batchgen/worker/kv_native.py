"""The KV methods of a worker by plan: a snapshot of it, a plan made from that, and the plan carried out.

What only reads is `KVCacheManager` itself, bound to the live worker; what changes something is overridden here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from batchgen.sequence import SequenceStatus
from batchgen.worker.kv_apply import apply_allocation, apply_eviction
from batchgen.worker.kv_manager import KVCacheManager
from batchgen.worker.kv_plans import (
    Allocation,
    AllocRequest,
    Eviction,
    EvictionRequest,
    KvSnapshot,
    MigrationRequest,
    NodeUse,
    RankShare,
)
from batchgen.worker.kv_snapshot import snapshot


class KvNative(KVCacheManager):
    """What the gates route to and the delegates call: `KvNative.for_worker(worker)`."""

    def _reserve_whole_budget(self, local_ids: Sequence[int], sequence_tokens: Sequence[int]) -> None:
        req = AllocRequest(
            self._of(self._uuids(local_ids)),
            Allocation.WHOLE_BUDGET,
            local_ids=tuple(local_ids),
            tokens=tuple(sequence_tokens),
        )
        self._allocate(req)

    def _allocate_gpu_kv_two_page_buffer(self, local_ids: Sequence[int], load_from_host: bool = True) -> bool:
        snapshot = self._of(self._uuids(local_ids))
        kind = Allocation.TWO_PAGE_BUFFER
        return self._allocate(
            AllocRequest(snapshot, kind, local_ids=tuple(local_ids), load_from_host=load_from_host)
        )

    def _extend_gpu_kv_allocation(self, uuids: Sequence[str]) -> bool:
        return self._allocate(AllocRequest(self._of(uuids), Allocation.EXTENSION, uuids=tuple(uuids)))

    def _grow_host_kv(self, uuids: Sequence[str], pages: Sequence[int]) -> None:
        self._allocate(
            AllocRequest(self._of(uuids), Allocation.HOST_GROWTH, uuids=tuple(uuids), pages=tuple(pages))
        )

    def _release_gpu_kv_pages(self, local_ids: Sequence[int]) -> None:
        snapshot = self._of(self._uuids(local_ids))
        self._evict(EvictionRequest(snapshot, Eviction.RELEASE, local_ids=tuple(local_ids)))

    def _put_sequences_onhold(self, uuids: Sequence[str]) -> None:
        self._evict(EvictionRequest(self._of(uuids), Eviction.HOLD, uuids=tuple(uuids)))

    def _decide_watermark_trigger(self, by_node: Mapping[int, Mapping[str, int]]) -> bool:
        worker: Any = self._req
        return self._evict(
            EvictionRequest(
                self._of(()),
                Eviction.WATERMARK,
                nodes=tuple(NodeUse(node, use["free_percent"]) for node, use in by_node.items()),
                work_is_queued=worker._has_queued_work(),
                some_are_evicted=worker.global_batch.has_status(SequenceStatus.EVICTED),
            )
        )

    def _plan_moves(
        self, gathered: Sequence[tuple[Mapping[str, int], Mapping[str, int]]]
    ) -> list[tuple[str, int, int]]:
        shares = tuple(
            RankShare(use["node_id"], use["num_used_pages"], use["num_total_pages"], tuple(movable.items()))
            for use, movable in gathered
        )
        named = [uuid for share in shares for uuid, _ in share.movable]
        return list(self._manager().plan_migration(MigrationRequest(self._of(named), shares)).moves)

    def _manager(self) -> KVCacheManager:
        return KVCacheManager(gpu_kv=self._gpu_kv, host_kv=self._host_kv)

    def _allocate(self, req: AllocRequest) -> bool:
        return apply_allocation(self._req, self._manager().plan_allocation(req))

    def _evict(self, req: EvictionRequest) -> bool:
        return apply_eviction(self._req, self._manager().plan_eviction(req))

    def _uuids(self, local_ids: Iterable[int]) -> list[str]:
        worker: Any = self._req
        return [worker._get_sequence_by_local(local_idx).uuid for local_idx in local_ids]

    def _of(self, uuids: Iterable[str]) -> KvSnapshot:
        worker: Any = self._req
        return snapshot(worker, [worker.global_batch.get_sequence(uuid) for uuid in dict.fromkeys(uuids)])
