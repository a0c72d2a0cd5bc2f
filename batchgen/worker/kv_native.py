"""The KV methods of a worker by plan: a snapshot of it, a plan made from that, and the plan carried out.

What only reads is `KVCacheManager` itself, bound to the live worker; what changes something is overridden here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchgen.continuous_batching import NodeHostStats
from batchgen.sequence import SequenceStatus
from batchgen.worker.kv_apply import apply_allocation, apply_eviction
from batchgen.worker.kv_manager import KVCacheManager
from batchgen.worker.kv_outcome import KvState, after, read
from batchgen.worker.kv_plans import (
    Allocation,
    AllocPlan,
    AllocRequest,
    Eviction,
    EvictionPlan,
    EvictionRequest,
    KvSnapshot,
    MigrationPlan,
    MigrationRequest,
    NodeUse,
    RankShare,
)
from batchgen.worker.kv_snapshot import snapshot

Request = AllocRequest | EvictionRequest | MigrationRequest
Gathered = Sequence[tuple[Mapping[str, int], Mapping[str, int]]]


@dataclass(frozen=True)
class Foreseen:
    """What a call comes to, for `shadow.experiment.Planned`."""

    worker: Any
    value: Any
    expected: KvState

    def found(self) -> KvState:
        return read(self.worker, self.expected)


class KvNative(KVCacheManager):
    """What the gates route to and the delegates call: `KvNative.for_worker(worker)`."""

    @classmethod
    def foresee(cls, worker: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Foreseen:
        """What a call of the method `name` comes to; nothing of the worker is changed. Raises what the call raises."""
        native = cls.for_worker(worker)
        asks: dict[str, Callable[..., Request]] = {
            "_reserve_whole_budget": native._ask_whole_budget,
            "_allocate_gpu_kv_two_page_buffer": native._ask_two_page_buffer,
            "_extend_gpu_kv_allocation": native._ask_extension,
            "_grow_host_kv": native._ask_host_growth,
            "_release_gpu_kv_pages": native._ask_release,
            "_put_sequences_onhold": native._ask_hold,
            "_decide_watermark_trigger": native._ask_watermark,
            "_host_pages_kept_back": native._ask_keep_back,
            "_plan_moves": native._ask_moves,
        }
        req = asks[name](*args, **kwargs)
        plan = native._plan(req)
        operations = () if isinstance(plan, MigrationPlan) else plan.operations
        return Foreseen(worker, _value(req, plan), after(req.snapshot, operations, Counter(worker.counters)))

    def _reserve_whole_budget(self, local_ids: Sequence[int], sequence_tokens: Sequence[int]) -> None:
        self._carry_out(self._ask_whole_budget(local_ids, sequence_tokens))

    def _allocate_gpu_kv_two_page_buffer(self, local_ids: Sequence[int], load_from_host: bool = True) -> bool:
        return bool(self._carry_out(self._ask_two_page_buffer(local_ids, load_from_host)))

    def _extend_gpu_kv_allocation(self, uuids: Sequence[str]) -> bool:
        return bool(self._carry_out(self._ask_extension(uuids)))

    def _grow_host_kv(self, uuids: Sequence[str], pages: Sequence[int]) -> None:
        self._carry_out(self._ask_host_growth(uuids, pages))

    def _release_gpu_kv_pages(self, local_ids: Sequence[int]) -> None:
        self._carry_out(self._ask_release(local_ids))

    def _put_sequences_onhold(self, uuids: Sequence[str]) -> None:
        self._carry_out(self._ask_hold(uuids))

    def _decide_watermark_trigger(self, by_node: Mapping[int, Mapping[str, int]]) -> bool:
        return bool(self._carry_out(self._ask_watermark(by_node)))

    def _host_pages_kept_back(self, stats: Sequence[NodeHostStats]) -> dict[int, int]:
        req = self._ask_keep_back(stats)
        kept_back: dict[int, int] = _value(req, self._plan(req))
        return kept_back

    def _plan_moves(self, gathered: Gathered) -> list[tuple[str, int, int]]:
        req = self._ask_moves(gathered)
        moves: list[tuple[str, int, int]] = _value(req, self._plan(req))
        return moves

    # requests

    def _ask_whole_budget(self, local_ids: Sequence[int], sequence_tokens: Sequence[int]) -> AllocRequest:
        snapshot = self._of(self._uuids(local_ids))
        kind = Allocation.WHOLE_BUDGET
        return AllocRequest(snapshot, kind, local_ids=tuple(local_ids), tokens=tuple(sequence_tokens))

    def _ask_two_page_buffer(self, local_ids: Sequence[int], load_from_host: bool = True) -> AllocRequest:
        snapshot = self._of(self._uuids(local_ids))
        kind = Allocation.TWO_PAGE_BUFFER
        return AllocRequest(snapshot, kind, local_ids=tuple(local_ids), load_from_host=load_from_host)

    def _ask_extension(self, uuids: Sequence[str]) -> AllocRequest:
        return AllocRequest(self._of(uuids), Allocation.EXTENSION, uuids=tuple(uuids))

    def _ask_host_growth(self, uuids: Sequence[str], pages: Sequence[int]) -> AllocRequest:
        return AllocRequest(self._of(uuids), Allocation.HOST_GROWTH, uuids=tuple(uuids), pages=tuple(pages))

    def _ask_release(self, local_ids: Sequence[int]) -> EvictionRequest:
        snapshot = self._of(self._uuids(local_ids))
        return EvictionRequest(snapshot, Eviction.RELEASE, local_ids=tuple(local_ids))

    def _ask_hold(self, uuids: Sequence[str]) -> EvictionRequest:
        return EvictionRequest(self._of(uuids), Eviction.HOLD, uuids=tuple(uuids))

    def _ask_watermark(self, by_node: Mapping[int, Mapping[str, int]]) -> EvictionRequest:
        worker: Any = self._req
        return EvictionRequest(
            self._of(()),
            Eviction.WATERMARK,
            nodes=tuple(NodeUse(node, use["free_percent"]) for node, use in by_node.items()),
            work_is_queued=worker._has_queued_work(),
            some_are_evicted=worker.global_batch.has_status(SequenceStatus.EVICTED),
        )

    def _ask_keep_back(self, stats: Sequence[NodeHostStats]) -> EvictionRequest:
        return EvictionRequest(self._of(()), Eviction.KEEP_BACK, stats=tuple(stats))

    def _ask_moves(self, gathered: Gathered) -> MigrationRequest:
        shares = tuple(
            RankShare(use["node_id"], use["num_used_pages"], use["num_total_pages"], tuple(movable.items()))
            for use, movable in gathered
        )
        return MigrationRequest(self._of(uuid for share in shares for uuid, _ in share.movable), shares)

    # plans

    def _plan(self, req: Request) -> AllocPlan | EvictionPlan | MigrationPlan:
        manager = KVCacheManager(gpu_kv=self._gpu_kv, host_kv=self._host_kv)
        match req:
            case AllocRequest():
                return manager.plan_allocation(req)
            case EvictionRequest():
                return manager.plan_eviction(req)
            case MigrationRequest():
                return manager.plan_migration(req)

    def _carry_out(self, req: AllocRequest | EvictionRequest) -> bool:
        plan = self._plan(req)
        if isinstance(plan, AllocPlan):
            return apply_allocation(self._req, plan)
        assert isinstance(plan, EvictionPlan)
        return apply_eviction(self._req, plan)

    def _uuids(self, local_ids: Iterable[int]) -> list[str]:
        worker: Any = self._req
        return [worker._get_sequence_by_local(local_idx).uuid for local_idx in local_ids]

    def _of(self, uuids: Iterable[str]) -> KvSnapshot:
        worker: Any = self._req
        return snapshot(worker, [worker.global_batch.get_sequence(uuid) for uuid in dict.fromkeys(uuids)])


def _value(req: Request, plan: AllocPlan | EvictionPlan | MigrationPlan) -> Any:
    """What the worker's method returns."""
    match req, plan:
        case AllocRequest(kind=Allocation.TWO_PAGE_BUFFER | Allocation.EXTENSION), AllocPlan(granted=granted):
            return granted
        case EvictionRequest(kind=Eviction.WATERMARK), EvictionPlan(pause=pause):
            return pause
        case EvictionRequest(kind=Eviction.KEEP_BACK), EvictionPlan(kept_back=kept_back):
            return dict(kept_back)
        case MigrationRequest(), MigrationPlan(moves=moves):
            return list(moves)
    return None
