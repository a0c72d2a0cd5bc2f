"""Methods of BatchGenWorker: cut out of batchgen/batchgen_worker.py."""

from __future__ import annotations

import copy
import logging
import os
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Protocol, Self, Sequence, Set, Tuple

import torch
import torch.distributed as dist

from batchgen.attention import AttnWrapperBase
from batchgen.attention import AttnWrapperBase as Attn_Wrapper
from batchgen.continuous_batching import (
    BoundaryDecisions,
    LoadCandidate,
    NodeHostStats,
    PageClaim,
    plan_host_kv_growth_evictions,
    select_sequences_for_loading,
    select_sequences_for_onhold,
    validate_boundary_payload_alignment,
)
from batchgen.kv import DualHostKVCoordinator, DualKVCacheCoordinator
from batchgen.sequence import SequenceStatus
from batchgen.worker.decode_types import (
    GRAPHS_DISABLED,
    DecodeBatch,
    DecodeStepRequest,
    DecodeStepResult,
    DeferredIndexKeys,
    DeferredKv,
)

if TYPE_CHECKING:
    from collections import Counter

    from batchgen.batchgen_worker import (
        BatchGenWorkerArgs,
        _DecodeLoopState,
        _DecodeWatchdog,
        _DualKVLoadPointers,
    )
    from batchgen.kv import DualAsyncLoadTask
    from batchgen.sequence import QueryBookEntry, SequenceEntry
    from batchgen.worker.decode_protocols import ModelExecutorBackend, SyncCoordinator

logger = logging.getLogger("batchgen.worker")


class DecodeState(Protocol):
    """The worker as one run of the decode loop sees it.

    Created on first use, so hasattr() may be False: _async_load_tensors, _cumulative_boundary_seconds,
    _cumulative_decode_seconds, _cumulative_decode_steps, _current_decode_max_rank_batch_size,
    _current_decode_rank_token_counts, _deferred_kv_append_wait_errors, core_engine,
    host_paged_kv_worker_view, parallel_manager.
    """

    _async_load_tensors: Any
    _cache_seqlens_buffer: Optional[torch.Tensor]
    _cumulative_boundary_seconds: float
    _cumulative_decode_seconds: float
    _cumulative_decode_steps: int
    _current_decode_max_rank_batch_size: Any
    _current_decode_rank_token_counts: Any
    _decode_batch: Optional[DecodeBatch]
    _decode_metadata_key: Optional[Tuple[List[int], List[int]]]
    _deferred_kv_append_wait_errors: list[Any]
    _deferred_kv_batch: Optional[Tuple[List[int], List[int]]]
    _deferred_kv_entries: List[Tuple[int, torch.Tensor, Optional[torch.Tensor]]]
    _deferred_kv_entries_aux: List[Tuple[int, torch.Tensor, Optional[torch.Tensor]]]
    _pending_kv_append_tasks: List[Any]
    _pending_kv_append_tensors: List[Any]
    _position_ids_buffer: Optional[torch.Tensor]
    _token_readback: Optional[torch.Tensor]
    model: Any
    parallel_manager: Any

    @property
    def DECISION_INTERVAL(self) -> int: ...

    @property
    def PAGE_SIZE(self) -> int: ...

    def _allocate_gpu_kv_two_page_buffer(
        self,
        local_ids: Sequence[int],
        load_from_host: bool = ...,
    ) -> bool: ...

    def _allocate_gpu_pages(self, uuid: str, n: int) -> List[int]: ...

    def _allocate_host_pages(self, uuid: str, n: int) -> List[int]: ...

    def _allocate_state_slots(self, local_ids: Sequence[int]) -> Any: ...

    def _append_decode_kv_to_host_aux_async(self, entries: Any, global_ids: Any, positions: Any) -> Any: ...

    def _append_decoded_token(self, seq: SequenceEntry, token: int) -> Any: ...

    def _bind_decode_attention_metadata(self, sequences: Sequence[SequenceEntry]) -> int: ...

    def _boundary_finalize(self, decode_uuids: Sequence[str]) -> Tuple[List[int], bool]: ...

    def _boundary_gather_state(self, decode_uuids: Sequence[str]) -> List[Dict[str, Any]]: ...

    def _boundary_wait_pending(
        self,
        decode_uuids: Sequence[str],
        batch: List[int],
        pending_task: Optional[Any],
        pending_load_uuids: Sequence[str],
        pending_load_global: Sequence[int],
    ) -> Tuple[List[str], List[int]]: ...

    def _check_first_gpu_pages(self, pages: Dict[int, int]) -> Any: ...

    def _check_host_growth(self, pages: Dict[int, int]) -> Any: ...

    def _check_host_kv_watermark_trigger(self) -> bool: ...

    def _complete_sequences(self, uuids: Sequence[str]) -> Any: ...

    def _compute_boundary_decisions(
        self,
        decode_uuids: Sequence[str],
        global_seq_state: Dict[str, Dict[str, Any]],
        global_candidate_info: Dict[str, Dict[str, Any]],
        per_rank_free: Dict[int, int],
        node_stats: Sequence[NodeHostStats],
    ) -> BoundaryDecisions: ...

    def _compute_host_kv_sequence_tokens(self, local_ids: Sequence[int]) -> List[int]: ...

    def _compute_two_page_buffer_allocation(self, local_ids: Sequence[int]) -> Dict[int, int]: ...

    def _decode_begin_deferred_kv(self, sequences: Sequence[SequenceEntry]) -> Any: ...

    def _decode_bind_attn_wrapper(self, batch: Sequence[int]) -> Any: ...

    def _decode_forward_step(
        self,
        state: _DecodeLoopState,
        new_tokens: torch.Tensor,
        batch: Sequence[int],
    ) -> Tuple[torch.Tensor, List[int]]: ...

    def _decode_handle_boundary(
        self,
        state: _DecodeLoopState,
        new_tokens: torch.Tensor,
        decode_uuids: Sequence[str],
        batch: List[int],
    ) -> Tuple[str, torch.Tensor, List[str], List[int]]: ...

    def _decode_update_sequences(self, batch: Sequence[int], tokens: Sequence[int]) -> Any: ...

    def _decode_verify_page_table(self, state: _DecodeLoopState, batch: Sequence[int]) -> Any: ...

    def _disable_decode_watchdog(self) -> Any: ...

    def _enable_decode_watchdog(self) -> Any: ...

    def _ensure_gpu_paged_kv_manager(self, sequence_tokens: List[int]) -> Any: ...

    def _evict_sequences(self, uuids: Sequence[str]) -> Any: ...

    def _extend_gpu_kv_allocation(self, uuids: Sequence[str]) -> bool: ...

    def _flush_deferred_kv_to_host(self) -> Any: ...

    def _gather_host_kv_stats_by_node(self, worker_view: Any) -> List[NodeHostStats]: ...

    def _get_gpu_kv_free_pages(self) -> int: ...

    def _get_sequence_by_local(self, local_idx: int) -> SequenceEntry: ...

    @property
    def _global_to_uuid(self) -> Dict[int, str]: ...

    @property
    def _graph_flags(self) -> Any: ...

    def _grow_host_kv(self, uuids: Sequence[str], pages: Sequence[int]) -> Any: ...

    def _has_queued_work(self) -> bool: ...

    def _host_chunk_tokens(self) -> int: ...

    def _is_sequence_completed(self, seq: SequenceEntry) -> bool: ...

    def _local_indices_for(self, uuids: Sequence[str]) -> List[int]: ...

    def _local_to_global_id(self, local_idx: int) -> int: ...

    @property
    def _local_to_uuid_map(self) -> Dict[int, str]: ...

    def _log_batch_statistics(self, where: str) -> Any: ...

    def _page_boundary_fast(
        self,
        decode_uuids: Sequence[str],
        batch: List[int],
        pending_task: Optional[Any],
        pending_load_uuids: Sequence[str],
        pending_load_global: Sequence[int],
    ) -> Any: ...

    def _poll_admissions(self) -> int: ...

    def _prepare_gpu_paged_kv_cache(self, local_ids: Sequence[int]) -> Any: ...

    def _put_sequences_onhold(self, uuids: Sequence[str]) -> Any: ...

    def _rebuild_page_table_for_batch(self, batch: Sequence[int]) -> Any: ...

    def _release_gpu_kv_pages(self, local_ids: Sequence[int]) -> Any: ...

    def _release_host_kv_pages(self, uuids: Sequence[str]) -> Any: ...

    def _report_progress(self) -> Any: ...

    def _select_sequences_for_onhold(
        self,
        states: Dict[str, Dict[str, Any]],
        uuids: Sequence[str],
        free_pages: int,
    ) -> List[str]: ...

    def _select_tokens(self, logits: torch.Tensor, batch_sequences: List[SequenceEntry]) -> torch.Tensor: ...

    @property
    def _sequences_with_gpu_kv(self) -> Set[int]: ...

    def _settle_pending_decode_load(
        self,
        state: _DecodeLoopState,
        decode_uuids: Sequence[str],
        batch: List[int],
    ) -> Tuple[List[str], List[int]]: ...

    def _sort_by_global_idx(self, uuids: Any) -> List[str]: ...

    def _unbind_attn_wrapper(self) -> Any: ...

    @property
    def _uuid_to_local_map(self) -> Dict[str, int]: ...

    def _wait_pending_kv_append_tasks(
        self,
        *,
        sync_distributed_errors: bool = ...,
        defer_errors: bool = ...,
    ) -> int: ...

    @property
    def _watchdog(self) -> _DecodeWatchdog: ...

    @property
    def args(self) -> BatchGenWorkerArgs: ...

    @property
    def core_engine(self) -> Any: ...

    @property
    def counters(self) -> Counter: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def global_batch(self) -> Any: ...

    @property
    def gpu_paged_kv_cache_manager(self) -> Any | None: ...

    @property
    def host_paged_kv_worker_view(self) -> Any: ...

    @property
    def query_book(self) -> Dict[int, QueryBookEntry]: ...

    @property
    def rank(self) -> int: ...

    def set_phase(self, phase: str) -> Any: ...

    @property
    def world_size(self) -> int: ...


class DecodeScheduler:
    """Methods of BatchGenWorker, without state of its own.

    Attributes stay on what `on` binds and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    _bound_req: DecodeState | None = None

    def __init__(self, *, executor: ModelExecutorBackend, sync: SyncCoordinator) -> None:
        self._executor = executor
        self._sync = sync

    @classmethod
    def for_worker(cls, worker: Any) -> Self:
        """Handles on a worker: the worker itself, or what the recipe says is read from it."""
        from batchgen.worker.backends.decode import Executor, Sync

        return cls(executor=Executor(lambda: worker), sync=Sync(lambda: worker)).on(worker)

    def on(self, req: DecodeState) -> Self:
        """This handler for one object: a shallow copy, bound to it."""
        bound = copy.copy(self)
        bound._bound_req = req
        return bound

    @property
    def _req(self) -> DecodeState:
        """What `on` bound."""
        if self._bound_req is None:
            raise RuntimeError("DecodeScheduler is not bound: call on(req) first")
        return self._bound_req

    def _select_sequences_for_onhold(
        self, states: Dict[str, Dict[str, Any]], uuids: Sequence[str], free_pages: int
    ) -> List[str]:
        """Which of one rank's sequences must pause so that the others can extend: shortest first.

		Order is (priority, decoded length, global index). A paused sequence gives its pages and needs none.
		"""
        claims = [
            PageClaim(
                uuid=uuid,
                global_idx=self._req.global_batch.get_sequence(uuid).global_idx,
                priority=self._req.global_batch.get_sequence(uuid).priority,
                decoded_length=states[uuid]["decoded_length"],
                held=states[uuid]["gpu_pages_allocated"],
                wanted=states[uuid]["additional_pages_needed"],
            )
            for uuid in uuids
        ]
        return list(select_sequences_for_onhold(claims, free_pages))

    def _flush_deferred_kv_to_host(self):
        """Start the host append of the step's collected KV: one batched task per pool."""
        from batchgen.batchgen_worker import MAX_PENDING_KV_APPENDS

        if self._req._deferred_kv_batch is None:
            return
        global_ids, positions = self._req._deferred_kv_batch
        self._req._deferred_kv_batch = None
        entries, self._req._deferred_kv_entries = self._req._deferred_kv_entries, []
        entries_aux, self._req._deferred_kv_entries_aux = self._req._deferred_kv_entries_aux, []
        if not global_ids:
            return
        self._ensure_host_kv_append_capacity(global_ids, positions)
        self._append_decode_kv_to_host_async(entries, global_ids, positions)
        if entries_aux:
            self._req._append_decode_kv_to_host_aux_async(entries_aux, global_ids, positions)
        if len(self._req._pending_kv_append_tasks) > MAX_PENDING_KV_APPENDS:
            self._req._wait_pending_kv_append_tasks()

    def _ensure_host_kv_append_capacity(self, global_ids: Sequence[int], positions: Sequence[int]):
        """Host pages exist for every position about to be written; grows on demand within the token budget."""
        from batchgen.batchgen_worker import _ceil_div

        view = self._req.core_engine.host_paged_kv_worker_view
        grow = []
        for global_id, position in zip(global_ids, positions):
            uuid = self._req._global_to_uuid.get(global_id)
            if uuid is None or not view.has_sequence(global_id):
                raise RuntimeError(f"host KV append for unknown sequence {global_id}")
            if position < 0:
                raise RuntimeError(f"host KV append for sequence {global_id} at negative position {position}")
            seq = self._req.global_batch.get_sequence(uuid)
            if seq.host_pages_allocated == 0:
                raise RuntimeError(f"host KV append for sequence {global_id}, which has no host pages")
            if position >= seq.kv_token_budget:
                raise RuntimeError(
                    f"host KV append for sequence {global_id} at {position}, over its budget of {seq.kv_token_budget} tokens"
                )
            missing = _ceil_div(position + 1, self._req.PAGE_SIZE) - seq.host_pages_allocated
            if missing > 0:
                grow.append((seq, missing))
        if not grow:
            return
        self._req._check_host_growth({seq.global_idx: pages for seq, pages in grow})
        for seq, pages in grow:
            self._req._allocate_host_pages(seq.uuid, pages)
            seq.host_pages_allocated += pages
            seq.host_token_capacity = seq.host_pages_allocated * self._req.PAGE_SIZE
            self._req.counters["host_pages_grown"] += pages

    def _append_decode_kv_to_host_aux_async(self, entries, global_ids, positions):
        """Index keys of the auxiliary pool, in step with the primary's append."""
        view = self._req.core_engine.host_paged_kv_worker_view_aux
        if view is None:
            raise RuntimeError("index keys were collected, but no auxiliary host pool is bound")
        task = view.async_append_decode_kv_to_host_batched_kernel(entries, global_ids, positions)
        self._req._pending_kv_append_tasks.append(task)
        self._req._pending_kv_append_tensors.append(entries)

    def _prepare_dual_kv_load_pointers(
        self, gpu_manager: Any, new_ids: Sequence[int], existing_ids: Optional[Sequence[int]] = None
    ) -> _DualKVLoadPointers:
        """Load targets of `new_ids` in both pools, while the page table goes on naming `existing_ids` only.

		The table names the new sequences just long enough to read their pages off it: the decode steps that run
		during the load must not see pages whose KV has not arrived. RuntimeError when the pools disagree.
		"""
        from batchgen.batchgen_worker import _DualKVLoadPointers, _ceil_div

        if not isinstance(gpu_manager, DualKVCacheCoordinator):
            raise RuntimeError(f"a dual KV load needs the dual coordinator, got {type(gpu_manager).__name__}")
        primary, auxiliary = gpu_manager.primary, gpu_manager.auxiliary
        new_ids = list(new_ids)
        try:
            gpu_manager.rebuild_page_table(new_ids)
            for pool in (primary, auxiliary):
                if pool.slot_to_seq_id != new_ids:
                    raise RuntimeError(
                        f"page table of the {pool.config.name} pool has rows {pool.slot_to_seq_id}, "
                        f"requested were {new_ids}"
                    )
            held = primary.export_active_sequence_page_counts()
            held_aux = auxiliary.export_active_sequence_page_counts()
            if not torch.equal(held, held_aux):
                raise RuntimeError(
                    f"sequences {new_ids} have {held.tolist()} pages in the primary pool and {held_aux.tolist()} in "
                    "the auxiliary pool"
                )
            k_ptrs, v_ptrs = primary.get_page_pointers()
            aux_k_ptrs, _ = auxiliary.get_page_pointers()
        finally:
            if existing_ids:
                gpu_manager.rebuild_page_table(list(existing_ids))
            else:
                gpu_manager.clear_page_table()

        counts = []
        for global_id in new_ids:
            seq = self._req.global_batch.get_sequence(self._req._global_to_uuid[global_id])
            counts.append(_ceil_div(seq.current_context_length - 1, self._req.PAGE_SIZE))
        return _DualKVLoadPointers(
            sequence_ids=torch.tensor(new_ids, dtype=torch.int64),
            active_page_counts=torch.tensor(counts, dtype=torch.int64),
            k_ptrs=k_ptrs,
            v_ptrs=v_ptrs,
            aux_k_ptrs=aux_k_ptrs,
        )

    def _launch_dual_host_kv_load(self, pointers: _DualKVLoadPointers) -> DualAsyncLoadTask:
        """Start loading both pools; one task that waits for both."""
        view = getattr(self._req.core_engine, "host_paged_kv_worker_view", None)
        if not isinstance(view, DualHostKVCoordinator):
            raise RuntimeError(
                f"a dual KV load needs the dual host coordinator, bound is {type(view).__name__}: the index keys of "
                f"sequences {pointers.sequence_ids.tolist()} would stay stale"
            )
        return view.async_load_dual(
            pointers.sequence_ids,
            pointers.active_page_counts,
            pointers.k_ptrs,
            pointers.v_ptrs,
            pointers.aux_k_ptrs,
        )

    def _rebuild_input_tokens(self, batch: Sequence[int]) -> torch.Tensor:
        """Newest token of each local sequence, int64 [B] on the device: the next step's input."""
        tokens = []
        for local_idx in batch:
            seq = self._req._get_sequence_by_local(local_idx)
            tokens.append(int(self._req.query_book[local_idx].decoded_tokens[0, seq.decoded_length - 1]))
        return torch.tensor(tokens, dtype=torch.int64, device=self._req.device)

    def _prepare_decode_batch(self) -> List[str]:
        """Sequences to decode now, in global order, within each rank's live free pages and row limit (collective)."""
        candidates = self._decode_candidates()
        if not candidates:
            return []
        self._req._ensure_gpu_paged_kv_manager(self._live_local_budgets())
        free = [torch.zeros(1, dtype=torch.int64) for _ in range(self._req.world_size)]
        dist.all_gather(free, torch.tensor([self._req._get_gpu_kv_free_pages()], dtype=torch.int64))
        free_pages = [int(pages.item()) for pages in free]
        rows = [0] * self._req.world_size
        chosen = []
        for seq in candidates:
            rank = seq.assigned_rank
            pages = seq.get_gpu_pages_for_two_page_buffer()
            if rows[rank] >= self._req.args.max_batch_size or pages > free_pages[rank]:
                continue
            rows[rank] += 1
            free_pages[rank] -= pages
            chosen.append(seq.uuid)
        if not chosen:
            raise RuntimeError(
                f"[SCHED_INVARIANT] {len(candidates)} sequences wait to decode and none fits into free pages {free_pages}"
            )
        return self._sync.agreed(chosen)

    def _decode_candidates(self) -> List[SequenceEntry]:
        waiting = self._req.global_batch.get_sequences_by_status(SequenceStatus.PREFILLED)
        waiting += self._req.global_batch.get_sequences_by_status(SequenceStatus.ON_HOLD)
        return sorted(waiting, key=lambda seq: seq.global_idx)

    def _live_local_budgets(self) -> List[int]:
        """Token budgets of all local sequences that still have work to do; sizes the GPU pool."""
        local_ids = [
            local_idx
            for local_idx, uuid in sorted(self._req._local_to_uuid_map.items())
            if self._req.global_batch.get_sequence(uuid).status != SequenceStatus.COMPLETED
        ]
        return self._req._compute_host_kv_sequence_tokens(local_ids)

    def _batch_fits_whole(self, local_ids: Sequence[int]) -> bool:
        """True when this rank's whole remaining work is this batch and fits the pool with its full budgets."""
        from batchgen.batchgen_worker import _ceil_div

        if self._req._has_queued_work() or self._req.global_batch.has_status(SequenceStatus.EVICTED):
            return False
        if len(local_ids) != len(self._req._local_to_uuid_map):
            return False
        pages = [_ceil_div(tokens, self._req.PAGE_SIZE) for tokens in self._req._compute_host_kv_sequence_tokens(local_ids)]
        return sum(pages) <= self._req._get_gpu_kv_free_pages()

    def _config_decoding_for_batch(self, decode_uuids: Sequence[str]) -> List[int]:
        """From prefill to decode: model and parallel manager, GPU pages with their KV, status.

		Returns the local batch in row order (global order).
		"""
        self._req._log_batch_statistics("decode phase")
        model = self._executor.model
        # The configured model may be another object; nothing may run on the old one in between.
        del self._req.model
        model, self._req.parallel_manager = self._req.core_engine.configure_decoding(
            model, max_rows_per_rank=self._req.args.max_batch_size
        )
        self._req.model = model
        self._req.set_phase("decode")
        batch = self._req._local_indices_for(decode_uuids)
        if batch:
            self._req._allocate_state_slots(batch)
            if self._batch_fits_whole(batch):
                self._req._prepare_gpu_paged_kv_cache(batch)
                self._req.counters["full_reservations"] += 1
            elif not self._req._allocate_gpu_kv_two_page_buffer(batch):
                raise RuntimeError(
                    f"[SCHED_INVARIANT] {len(batch)} selected sequences do not fit "
                    f"{self._req._get_gpu_kv_free_pages()} free GPU pages"
                )
        for uuid in decode_uuids:
            seq = self._req.global_batch.get_sequence(uuid)
            if seq.status == SequenceStatus.ON_HOLD:
                self._req.counters["reloads"] += 1
            self._req.global_batch.update_status(uuid, SequenceStatus.IN_DECODE)
        # Which allocation a rank chose, and so how many pages, is known to its owner alone.
        self._sync.publish(decode_uuids)
        self._req.counters["decode_phases"] += 1
        return batch

    def _compute_boundary_decisions(
        self,
        decode_uuids: Sequence[str],
        global_seq_state: Dict[str, Dict[str, Any]],
        global_candidate_info: Dict[str, Dict[str, Any]],
        per_rank_free: Dict[int, int],
        node_stats: Sequence[NodeHostStats],
    ) -> BoundaryDecisions:
        """What happens at this boundary, from the gathered state alone: rank 0 computes it for everybody.

		Pages that the decision itself frees are credited before they are handed out: completions first, then host
		evictions, then holds; loads take what is left.
		"""
        from batchgen.batchgen_worker import NUM_GPUS_PER_NODE

        completed = tuple(u for u in decode_uuids if global_seq_state[u]["completed"])
        active = tuple(u for u in decode_uuids if not global_seq_state[u]["completed"])
        rank_free = dict(per_rank_free)
        node_free = {node.node_id: node.free for node in node_stats}
        for uuid in completed:
            state = global_seq_state[uuid]
            rank_free[state["assigned_rank"]] += state["gpu_pages_allocated"]
            node_free[state["assigned_rank"] // NUM_GPUS_PER_NODE] += state["host_pages_allocated"]

        growth_uuids: List[str] = []
        growth_pages: List[int] = []
        evicted: List[str] = []
        stalled: List[str] = []
        growth_feasible = True
        scheduler_error: Optional[str] = None
        for node in node_stats:
            claims = self._host_page_claims(node.node_id, active, global_seq_state, global_candidate_info)
            if not any(claim.wanted for claim in claims):
                continue
            plan = plan_host_kv_growth_evictions(
                claims,
                NodeHostStats(node.node_id, node_free[node.node_id], node.total),
                enable_eviction=self._req.args.enable_host_kv_eviction,
            )
            if plan.feasible:
                growth_uuids.extend(plan.growth_uuids)
                growth_pages.extend(plan.growth_pages)
                evicted.extend(plan.evicted_uuids)
                continue
            growth_feasible = False
            # Sequences that were never decoded hold pages, too, and cannot be evicted yet: let them run first.
            waiting = [
                uuid
                for uuid, info in global_candidate_info.items()
                if info["status"] == int(SequenceStatus.PREFILLED)
                and info["assigned_rank"] // NUM_GPUS_PER_NODE == node.node_id
            ]
            if waiting:
                stalled.extend(claim.uuid for claim in claims if claim.wanted > 0)
            else:
                scheduler_error = (
                    f"[HOST_KV_GROWTH_PLAN] node {node.node_id}: {sum(plan.growth_pages)} host pages wanted by "
                    f"{len(plan.growth_uuids)} sequences, {node_free[node.node_id]} of {node.total} free, and nothing "
                    "left to evict; raise the host pool or enable host KV eviction"
                )
        if scheduler_error is not None:
            return BoundaryDecisions(
                completed_uuids=completed, active_uuids=active, growth_feasible=False, scheduler_error=scheduler_error
            )

        gone = set(evicted) | set(stalled)
        for uuid in gone & set(active):
            state = global_seq_state[uuid]
            rank_free[state["assigned_rank"]] += state["gpu_pages_allocated"]
        onhold: List[str] = list(stalled)
        for rank in range(self._req.world_size):
            mine = [u for u in active if u not in gone and global_seq_state[u]["assigned_rank"] == rank]
            victims = self._req._select_sequences_for_onhold(global_seq_state, mine, rank_free[rank])
            for uuid in victims:
                rank_free[rank] += global_seq_state[uuid]["gpu_pages_allocated"]
            onhold.extend(victims)
            for uuid in mine:
                if uuid not in victims:
                    rank_free[rank] -= global_seq_state[uuid]["additional_pages_needed"]
        onhold_set = set(onhold)
        final = tuple(u for u in active if u not in gone and u not in onhold_set)
        extension = tuple(u for u in final if global_seq_state[u]["additional_pages_needed"] > 0)
        growing = [(u, p) for u, p in zip(growth_uuids, growth_pages) if u not in gone]

        slots = {rank: self._req.args.max_batch_size for rank in range(self._req.world_size)}
        for uuid in final:
            slots[global_seq_state[uuid]["assigned_rank"]] -= 1
        candidates = [
            LoadCandidate(
                uuid=uuid,
                global_idx=self._req.global_batch.get_sequence(uuid).global_idx,
                group=info["assigned_rank"],
                pages_needed=info["pages_needed"],
                decoded_length=info["decoded_length"],
            )
            for uuid, info in global_candidate_info.items()
        ]
        loads, _ = select_sequences_for_loading(
            candidates, rank_free, exclude_uuids=set(evicted) | onhold_set, per_group_seq_slots=slots
        )
        return BoundaryDecisions(
            completed_uuids=completed,
            active_uuids=active,
            host_growth_uuids=tuple(u for u, _ in growing),
            host_growth_pages=tuple(p for _, p in growing),
            growth_feasible=growth_feasible and bool(growing),
            host_evicted_uuids=tuple(evicted),
            onhold_uuids=tuple(onhold),
            seqs_needing_extension=extension,
            new_load_uuids=loads,
            decode_uuids_final=final,
        )

    def _host_page_claims(
        self,
        node_id: int,
        active: Sequence[str],
        global_seq_state: Dict[str, Dict[str, Any]],
        global_candidate_info: Dict[str, Dict[str, Any]],
    ) -> List[PageClaim]:
        """One node's sequences that hold host pages and may be evicted: those decoding, and those on hold."""
        from batchgen.batchgen_worker import NUM_GPUS_PER_NODE

        claims = []
        held = [
            (uuid, info)
            for uuid, info in global_candidate_info.items()
            if info["status"] == int(SequenceStatus.ON_HOLD)
        ]
        for uuid, state in [(u, global_seq_state[u]) for u in active] + held:
            if state["assigned_rank"] // NUM_GPUS_PER_NODE != node_id:
                continue
            seq = self._req.global_batch.get_sequence(uuid)
            claims.append(
                PageClaim(
                    uuid=uuid,
                    global_idx=seq.global_idx,
                    priority=seq.priority,
                    decoded_length=state["decoded_length"],
                    held=state["host_pages_allocated"],
                    wanted=state.get("host_growth_pages", 0),
                )
            )
        return claims

    def _boundary_wait_pending(
        self,
        decode_uuids: Sequence[str],
        batch: List[int],
        pending_task: Optional[Any],
        pending_load_uuids: Sequence[str],
        pending_load_global: Sequence[int],
    ) -> Tuple[List[str], List[int]]:
        """Settle what runs beside the forward: host appends on all ranks, and the load of the last boundary."""
        from batchgen.batchgen_worker import BATCHGEN_CB_DEBUG

        self._req._wait_pending_kv_append_tasks(sync_distributed_errors=True)
        if BATCHGEN_CB_DEBUG:
            self._sync.check_alike(decode_uuids)
        if not pending_load_uuids:
            return list(decode_uuids), batch
        if pending_task is not None:
            pending_task.wait()
        dist.barrier()
        decode_uuids = self._finalize_async_load_minimal(decode_uuids, pending_load_uuids, pending_load_global)
        batch = self._req._local_indices_for(decode_uuids)
        self._req._rebuild_page_table_for_batch(batch)
        return decode_uuids, batch

    def _boundary_gather_state(self, decode_uuids: Sequence[str]) -> List[Dict[str, Any]]:
        """Every rank's free pages, and the state of its decoding and waiting sequences (collective)."""
        chunk = self._req._host_chunk_tokens()
        seq_state: Dict[str, Dict[str, Any]] = {}
        for uuid in decode_uuids:
            if uuid not in self._req._uuid_to_local_map:
                continue
            seq = self._req.global_batch.get_sequence(uuid)
            state = self._sync.owned(seq)
            state["completed"] = self._req._is_sequence_completed(seq)
            state["assigned_rank"] = seq.assigned_rank
            state["additional_pages_needed"] = seq.get_additional_gpu_pages_needed()
            state["host_growth_pages"] = seq.get_host_growth_pages(chunk) if seq.needs_host_kv_growth() else 0
            seq_state[uuid] = state
        candidate_state: Dict[str, Dict[str, Any]] = {}
        for seq in self._decode_candidates():
            if seq.uuid not in self._req._uuid_to_local_map:
                continue
            candidate_state[seq.uuid] = {
                "pages_needed": seq.get_gpu_pages_for_two_page_buffer(),
                "assigned_rank": seq.assigned_rank,
                "status": int(seq.status),
                "decoded_length": seq.decoded_length,
                "host_pages_allocated": seq.host_pages_allocated,
            }
        payloads: List[Any] = [None] * self._req.world_size
        dist.all_gather_object(
            payloads,
            {
                "free_pages": self._req._get_gpu_kv_free_pages(),
                "seq_state": seq_state,
                "candidate_state": candidate_state,
            },
        )
        return payloads

    def _boundary_merge_and_decide(
        self, decode_uuids: Sequence[str], payloads: Sequence[Dict[str, Any]]
    ) -> Tuple[BoundaryDecisions, Dict[str, Dict[str, Any]]]:
        """Check and merge the payloads, let rank 0 decide, and give everybody the decision (collective)."""
        validate_boundary_payload_alignment(
            [payload["seq_state"] for payload in payloads],
            {uuid: self._req.global_batch.get_sequence(uuid).assigned_rank for uuid in decode_uuids},
        )
        global_seq_state: Dict[str, Dict[str, Any]] = {}
        global_candidate_info: Dict[str, Dict[str, Any]] = {}
        for payload in payloads:
            global_seq_state.update(payload["seq_state"])
            global_candidate_info.update(payload["candidate_state"])
        for uuid, state in global_seq_state.items():
            if uuid not in self._req._uuid_to_local_map:
                self._sync.absorb(self._req.global_batch.get_sequence(uuid), state)
        node_stats = self._req._gather_host_kv_stats_by_node(self._req.core_engine.host_paged_kv_worker_view)
        message: List[Any] = [None]
        if self._req.rank == 0:
            try:
                message[0] = self._req._compute_boundary_decisions(
                    decode_uuids,
                    global_seq_state,
                    global_candidate_info,
                    {rank: payload["free_pages"] for rank, payload in enumerate(payloads)},
                    node_stats,
                )
            except Exception as error:
                # The other ranks wait in the broadcast: tell them, then fail together.
                logger.exception("boundary decision failed on rank 0")
                message[0] = BoundaryDecisions(scheduler_error=f"{type(error).__name__}: {error}")
        dist.broadcast_object_list(message, src=0)
        decisions: BoundaryDecisions = message[0]
        if decisions.scheduler_error is not None:
            raise RuntimeError(decisions.scheduler_error)
        return decisions, global_seq_state

    def _boundary_execute_decisions(self, decisions: BoundaryDecisions) -> List[str]:
        """Apply a decision in its order: completions, host evictions, host growth, holds, extensions (collective).

		Returns the sequences that go on decoding; extensions that fail on any rank go on hold on all.
		"""
        self._req._complete_sequences(decisions.completed_uuids)
        if decisions.host_evicted_uuids:
            self._req._evict_sequences(decisions.host_evicted_uuids)
        if decisions.host_growth_uuids:
            self._req._grow_host_kv(decisions.host_growth_uuids, decisions.host_growth_pages)
        if decisions.onhold_uuids:
            self._req._put_sequences_onhold(decisions.onhold_uuids)
        decode_uuids = list(decisions.decode_uuids_final)
        if not decisions.seqs_needing_extension:
            return decode_uuids
        extended = torch.tensor([int(self._can_extend(decisions.seqs_needing_extension))], dtype=torch.int64)
        dist.all_reduce(extended, op=dist.ReduceOp.MIN)
        if int(extended.item()) == 0:
            # A rank's pool has less than it reported. Its sequences cannot extend, and the list is everybody's.
            logger.error("extension of %s refused on some rank: on hold", list(decisions.seqs_needing_extension))
            self._req._put_sequences_onhold(decisions.seqs_needing_extension)
            refused = set(decisions.seqs_needing_extension)
            return [uuid for uuid in decode_uuids if uuid not in refused]
        if not self._req._extend_gpu_kv_allocation(decisions.seqs_needing_extension):
            raise RuntimeError("[SCHED_INVARIANT] GPU pages vanished between the extension check and the extension")
        for uuid in decisions.seqs_needing_extension:
            if uuid not in self._req._uuid_to_local_map:
                seq = self._req.global_batch.get_sequence(uuid)
                seq.gpu_pages_allocated += seq.get_additional_gpu_pages_needed()
        return decode_uuids

    def _can_extend(self, uuids: Sequence[str]) -> bool:
        local = [self._req._get_sequence_by_local(i) for i in self._req._local_indices_for(uuids)]
        return sum(seq.get_additional_gpu_pages_needed() for seq in local) <= self._req._get_gpu_kv_free_pages()

    def _evict_sequences(self, uuids: Sequence[str]):
        """Drop the host KV of sequences; each comes back through a prefill of everything it has so far.

		The owner keeps the tokens; all ranks note the re-entry prompt, so that capacity is computed alike.
		"""
        local_ids = [self._req._uuid_to_local_map[uuid] for uuid in uuids if uuid in self._req._uuid_to_local_map]
        with_gpu = [i for i in local_ids if self._req._local_to_global_id(i) in self._req._sequences_with_gpu_kv]
        if with_gpu:
            self._req._release_gpu_kv_pages(with_gpu)
        for local_idx in local_ids:
            seq = self._req._get_sequence_by_local(local_idx)
            fresh = self._req.query_book[local_idx].decoded_tokens[:, seq.reentry_decoded_baseline : seq.decoded_length]
            seq.evicted_token_ids = torch.cat([seq.input_ids, fresh], dim=1)
        self._req._release_host_kv_pages(uuids)
        for uuid in uuids:
            seq = self._req.global_batch.get_sequence(uuid)
            seq.total_decoded_before_eviction = seq.decoded_length
            seq.prompt_length += max(0, seq.decoded_length - seq.reentry_decoded_baseline)
            seq.reentry_decoded_baseline = seq.decoded_length
            seq.max_decode_length = seq.original_max_decode_length - seq.decoded_length
            seq.host_pages_allocated = 0
            seq.host_token_capacity = 0
            seq.reset_gpu_allocation()
            seq.decode_dp_group = None
            self._req.global_batch.update_status(uuid, SequenceStatus.EVICTED)
            self._req.counters["evictions"] += 1

    def _boundary_async_load(
        self, new_load_uuids: Sequence[str], existing_batch: Sequence[int]
    ) -> Tuple[Optional[Any], List[str], List[int], List[int]]:
        """Start loading the selected sequences beside the coming forward steps.

		Returns (task or None where this rank loads nothing, uuids of all ranks, local indices, global ids).
		"""
        local_ids = self._req._local_indices_for(new_load_uuids)
        global_ids = [self._req._local_to_global_id(i) for i in local_ids]
        task = None
        if local_ids:
            self._req._allocate_state_slots(local_ids)
            existing = [self._req._local_to_global_id(i) for i in existing_batch]
            task = self._launch_async_load_new_sequences(local_ids, existing)
        self._req.counters["async_loads"] += len(new_load_uuids)
        return task, list(new_load_uuids), local_ids, global_ids

    def _boundary_finalize(self, decode_uuids: Sequence[str]) -> Tuple[List[int], bool]:
        """Row order, page table and row counts for the next steps; then the watermark question (collective).

		Returns (local batch in row order, whether to leave the decode phase for a prefill).
		"""
        batch = self._req._local_indices_for(decode_uuids)
        self._req._rebuild_page_table_for_batch(batch)
        self._sync_decode_moe_rank_counts(batch, reason="boundary")
        dist.barrier()
        expected = self._sync.agreed(decode_uuids)
        if expected != list(decode_uuids):
            raise RuntimeError(f"[SCHED_INVARIANT] ranks disagree after a boundary: {decode_uuids} here, {expected} common")
        return batch, self._req._check_host_kv_watermark_trigger()

    def _page_boundary_fast(
        self,
        decode_uuids: Sequence[str],
        batch: List[int],
        pending_task: Optional[Any],
        pending_load_uuids: Sequence[str],
        pending_load_global: Sequence[int],
    ):
        """One boundary. The order of collectives is the same on every rank whatever it owns.

		Returns (decode_uuids, batch, new_async_task, new_load_uuids, new_load_local, new_load_global, timing,
		watermark_triggered).
		"""
        started = time.perf_counter()
        decode_uuids, batch = self._req._boundary_wait_pending(
            decode_uuids, batch, pending_task, pending_load_uuids, pending_load_global
        )
        waited = time.perf_counter()
        payloads = self._req._boundary_gather_state(decode_uuids)
        decisions, _ = self._boundary_merge_and_decide(decode_uuids, payloads)
        decided = time.perf_counter()
        decode_uuids = self._boundary_execute_decisions(decisions)
        task, load_uuids, load_local, load_global = self._boundary_async_load(
            decisions.new_load_uuids, self._req._local_indices_for(decode_uuids)
        )
        batch, watermark_triggered = self._req._boundary_finalize(decode_uuids)
        self._req.counters["boundaries"] += 1
        timing = {
            "wait_pending": waited - started,
            "decide": decided - waited,
            "execute": time.perf_counter() - decided,
        }
        return decode_uuids, batch, task, load_uuids, load_local, load_global, timing, watermark_triggered

    def _finalize_async_load_minimal(
        self, decode_uuids: Sequence[str], load_uuids: Sequence[str], load_global: Sequence[int]
    ) -> List[str]:
        """Loaded sequences join the decode: status and pages on all ranks, confirmed by the rank that loaded them."""
        confirmed = set(load_global)
        for uuid in load_uuids:
            seq = self._req.global_batch.get_sequence(uuid)
            pages = seq.get_gpu_pages_for_two_page_buffer()
            if uuid in self._req._uuid_to_local_map:
                if seq.global_idx not in confirmed:
                    raise RuntimeError(f"sequence {uuid} was to be loaded by this rank, which did not load it")
                allocated = self._req.gpu_paged_kv_cache_manager.num_pages_of(seq.global_idx)
                if allocated != pages:
                    raise RuntimeError(f"sequence {uuid} has {allocated} GPU pages, its reservation says {pages}")
            if seq.status == SequenceStatus.ON_HOLD:
                self._req.counters["reloads"] += 1
            self._req.global_batch.update_status(uuid, SequenceStatus.IN_DECODE)
            seq.gpu_pages_allocated = pages
            seq.mark_initial_gpu_reservation()
        self._req._async_load_tensors = None
        return self._req._sort_by_global_idx(list(decode_uuids) + list(load_uuids))

    def _bind_decode_attention_metadata(self, sequences: Sequence[SequenceEntry]) -> int:
        """kv_len (int32) and position (int64) per row into persistent device buffers; returns the longest kv_len.

		kv_len counts the token that this step writes, at position kv_len - 1. When the rows are those of the last
		step, each one token longer, the buffers advance in place.
		"""
        rows = [seq.global_idx for seq in sequences]
        lengths = [seq.current_context_length for seq in sequences]
        if self._req._cache_seqlens_buffer is None:
            # Inference tensors could not be updated in place outside of inference mode.
            with torch.inference_mode(False):
                capacity = self._req.args.max_batch_size
                self._req._cache_seqlens_buffer = torch.zeros(capacity, dtype=torch.int32, device=self._req.device)
                self._req._position_ids_buffer = torch.zeros(capacity, dtype=torch.int64, device=self._req.device)
        cache_seqlens = self._req._cache_seqlens_buffer[: len(rows)]
        position_ids = self._req._position_ids_buffer[: len(rows)]
        last = self._req._decode_metadata_key
        if last is not None and last[0] == rows and all(n == o + 1 for n, o in zip(lengths, last[1])):
            cache_seqlens.add_(1)
            position_ids.add_(1)
        else:
            cache_seqlens.copy_(torch.tensor(lengths, dtype=torch.int32), non_blocking=True)
            position_ids.copy_(torch.tensor(lengths, dtype=torch.int64) - 1, non_blocking=True)
        self._req._decode_metadata_key = (rows, lengths)
        AttnWrapperBase.cache_seqlens, AttnWrapperBase.position_ids = cache_seqlens, position_ids
        AttnWrapperBase.max_seqlen = max(lengths, default=0)
        return AttnWrapperBase.max_seqlen

    def _sync_decode_moe_rank_counts(self, batch: Sequence[int], *, reason: str):
        """How many rows every rank decodes (collective); the widest decides padding and bucket on all of them."""
        counts = [torch.zeros(1, dtype=torch.int64) for _ in range(self._req.world_size)]
        dist.all_gather(counts, torch.tensor([len(batch)], dtype=torch.int64))
        rank_counts = [int(count.item()) for count in counts]
        self._req._current_decode_max_rank_batch_size = max(rank_counts)
        self._req._current_decode_rank_token_counts = rank_counts
        self._executor.parallel.set_num_tokens_per_rank(max(rank_counts))
        self._executor.parallel.set_rank_token_counts(rank_counts)
        logger.debug("decode rows per rank at %s: %s", reason, rank_counts)
        self._executor.capture_graph()

    def _decode_bind_attn_wrapper(self, batch: Sequence[int]):
        """Publish pools, host views and row order to the attention wrapper's class attributes."""
        manager = self._req.gpu_paged_kv_cache_manager
        if isinstance(manager, DualKVCacheCoordinator):
            primary, auxiliary = manager.primary, manager.auxiliary
        else:
            primary, auxiliary = manager, None
        Attn_Wrapper.gpu_paged_kv_cache_manager = manager
        AttnWrapperBase.gpu_paged_kv_manager_primary, AttnWrapperBase.gpu_paged_kv_manager_aux = primary, auxiliary
        AttnWrapperBase.host_paged_kv_worker_view = self._req.host_paged_kv_worker_view
        AttnWrapperBase.host_paged_kv_worker_view_aux = getattr(
            self._req.core_engine, "host_paged_kv_worker_view_aux", None
        )
        Attn_Wrapper.cur_batch = [self._req._local_to_global_id(i) for i in batch]
        AttnWrapperBase.attention_backend = self._req.core_engine.attention_backend
        AttnWrapperBase.row_exact = self._req.args.row_exact
        self._req._decode_metadata_key = None

    def _decode_verify_page_table(self, state: _DecodeLoopState, batch: Sequence[int]):
        """The table's rows must be the batch's rows, in order: attention reads row i for batch row i."""
        if state.page_table_verified:
            return
        manager = self._req.gpu_paged_kv_cache_manager
        expected = [self._req._local_to_global_id(i) for i in batch]
        if manager is not None and list(manager.slot_to_seq_id) != expected:
            self._req._rebuild_page_table_for_batch(batch)
        state.page_table_verified = True

    def _decode_init_state(self, decode_uuids: Sequence[str]) -> _DecodeLoopState:
        """Fresh loop state; a boundary comes first when a sequence is about to outgrow its host pages."""
        from batchgen.batchgen_worker import _DecodeLoopState

        self._req._pending_kv_append_tasks = []
        self._req._pending_kv_append_tensors = []
        if not hasattr(self._req, "_cumulative_decode_steps"):
            self._req._cumulative_decode_steps = 0
            self._req._cumulative_decode_seconds = 0.0
            self._req._cumulative_boundary_seconds = 0.0
        due = False
        for uuid in decode_uuids:
            seq = self._req.global_batch.get_sequence(uuid)
            if seq.needs_host_kv_growth() and seq.get_host_growth_pages(self._req._host_chunk_tokens()) > 0:
                due = True
        return _DecodeLoopState(boundary_due=due)

    def _decode_initial_moe_sync(self, batch: Sequence[int]):
        self._sync_decode_moe_rank_counts(batch, reason="decode_entry")
        if self._req._token_readback is None:
            self._req._token_readback = torch.empty(
                self._req.args.max_batch_size, dtype=torch.int64, pin_memory=self._req.device.type == "cuda"
            )

    def _decode_handle_boundary(
        self, state: _DecodeLoopState, new_tokens: torch.Tensor, decode_uuids: Sequence[str], batch: List[int]
    ) -> Tuple[str, torch.Tensor, List[str], List[int]]:
        """Run a boundary and act on it: ("step" | "again" | "stop", input tokens, decode_uuids, batch)."""
        started = time.perf_counter()
        (
            decode_uuids,
            batch,
            state.pending_async_task,
            state.pending_load_uuids,
            _,
            state.pending_load_global,
            timing,
            watermark_triggered,
        ) = self._req._page_boundary_fast(
            decode_uuids, batch, state.pending_async_task, state.pending_load_uuids, state.pending_load_global
        )
        state.last_boundary = state.iteration
        state.boundary_due = False
        state.page_table_verified = False
        self._req._decode_metadata_key = None
        self._req._decode_verify_page_table(state, batch)
        self._req._cumulative_boundary_seconds += time.perf_counter() - started
        logger.debug("boundary %d: %s", self._req.counters["boundaries"], timing)
        if watermark_triggered:
            self._req._wait_pending_kv_append_tasks(sync_distributed_errors=True)
            # A load launched by this very boundary owns GPU pages: settle it, or they would be nobody's.
            decode_uuids, batch = self._req._settle_pending_decode_load(state, decode_uuids, batch)
            if decode_uuids:
                self._executor.rebalancer.put_on_hold(decode_uuids)
            self._req.counters["watermark_breaks"] += 1
            return "stop", new_tokens, [], []
        self._req._poll_admissions()
        if not decode_uuids:
            if not state.pending_load_uuids:
                return "stop", new_tokens, [], []
            decode_uuids, batch = self._req._settle_pending_decode_load(state, decode_uuids, batch)
            self._sync_decode_moe_rank_counts(batch, reason="load_only")
            # What has just come back may need host pages before it writes its next token.
            state.boundary_due = True
            return "again", new_tokens, decode_uuids, batch
        return "step", self._rebuild_input_tokens(batch), decode_uuids, batch

    def _settle_pending_decode_load(
        self, state: _DecodeLoopState, decode_uuids: Sequence[str], batch: List[int]
    ) -> Tuple[List[str], List[int]]:
        """Wait for a launched load and let its sequences join; every way out of the loop comes through here."""
        if not state.pending_load_uuids:
            return list(decode_uuids), batch
        if state.pending_async_task is not None:
            state.pending_async_task.wait()
        dist.barrier()
        decode_uuids = self._finalize_async_load_minimal(
            decode_uuids, state.pending_load_uuids, state.pending_load_global
        )
        state.pending_async_task = None
        state.pending_load_uuids, state.pending_load_global = [], []
        batch = self._req._local_indices_for(decode_uuids)
        self._req._rebuild_page_table_for_batch(batch)
        self._req._decode_metadata_key = None
        return decode_uuids, batch

    def _check_context_invariant(self, sequences: Sequence[SequenceEntry]):
        """context == original prompt + decoded, or the row would be written to a wrong position."""
        for seq in sequences:
            expected = seq.original_prompt_length + seq.decoded_length
            if seq.current_context_length != expected:
                raise RuntimeError(
                    f"[CTX_INVARIANT] sequence {seq.uuid} has context {seq.current_context_length}, prompt + decoded = {expected}"
                )

    def _decode_begin_deferred_kv(self, sequences: Sequence[SequenceEntry]):
        """Collect the step's KV per layer, for one host append after the forward (or at once, BATCHGEN_SYNC_KV=1)."""
        global_ids = [seq.global_idx for seq in sequences]
        positions = [seq.current_context_length - 1 for seq in sequences]
        self._req._deferred_kv_batch = (global_ids, positions)
        self._req._deferred_kv_entries = []
        self._req._deferred_kv_entries_aux = []
        kv_append_callback = DeferredKv(self._req._deferred_kv_entries)
        kv_append_callback_aux = DeferredIndexKeys(self._req._deferred_kv_entries_aux)
        if os.environ.get("BATCHGEN_SYNC_KV") == "1":
            self._req._deferred_kv_batch = None

            def kv_append_callback(layer_idx, k, v):
                self._ensure_host_kv_append_capacity(global_ids, positions)
                view = self._req.core_engine.host_paged_kv_worker_view
                view.async_append_decode_kv_to_host(layer_idx, global_ids, k, v, positions).wait()

            def kv_append_callback_aux(layer_idx, k):
                view = self._req.core_engine.host_paged_kv_worker_view_aux
                view.async_append_decode_kv_to_host(layer_idx, global_ids, k.unsqueeze(1), None, positions).wait()

        AttnWrapperBase.kv_append_callback = kv_append_callback
        AttnWrapperBase.kv_append_callback_aux = kv_append_callback_aux

    def _decode_stage(
        self, sequences: Sequence[SequenceEntry], new_tokens: torch.Tensor, max_seqlen: int
    ) -> DecodeStepRequest:
        """Put the coming step's batch where `step` finds it; returns what `step` is to be asked."""
        state = self._executor.batch_state(sequences, new_tokens, max_seqlen)
        self._req._decode_batch = DecodeBatch(
            state,
            tuple(sequences),
            self._req._token_readback[: len(sequences)],
            AttnWrapperBase.kv_append_callback,
            AttnWrapperBase.kv_append_callback_aux,
        )
        uuids = tuple(seq.uuid for seq in sequences)
        return DecodeStepRequest(
            uuids, state.cache_seqlens, state.position_ids, self._executor.decide(state)
        )

    def step(self, req: DecodeStepRequest) -> DecodeStepResult:
        """One decode forward of the staged batch (eligibility -> prepare_replay_inputs -> replay -> stage KV, or an eager
		run), and the selection of its tokens, whose copy to the host is started.

		RuntimeError, with nothing launched, when another batch is staged than the request's, or the adapter does not say
		of it what the request says.
		"""
        batch, adapter = self._executor.batch, self._executor.adapter
        if batch is None or not batch.is_for(req):
            raise RuntimeError(f"[SCHED_INVARIANT] the staged batch is not that of sequences {list(req.active_uuids)}")
        decision = GRAPHS_DISABLED if adapter is None else adapter.eligibility(batch.state)
        if decision != req.cuda_graph_decision:
            raise RuntimeError(f"[SCHED_INVARIANT] the step was to run by {req.cuda_graph_decision}, now it is {decision}")
        with torch.inference_mode():
            if decision.use_graph:
                inputs = adapter.prepare_replay_inputs(batch.state, decision.bucket)
                outputs = self._executor.replays.replay(decision.bucket, inputs)
                adapter.stage_post_graph_kv(batch.state, outputs, batch.append_kv, batch.append_index_keys)
                if self._req._graph_flags.compare:
                    self._executor.compare_replay(batch.state, inputs, outputs)
                self._req.counters["graph_steps"] += 1
                logits = outputs["logits"][: batch.state.local_bsz].unsqueeze(1)
            else:
                logits = self._executor.forward_decode(batch).logits
            next_tokens = self._req._select_tokens(logits[:, -1, :], list(batch.sequences))
        batch.readback.copy_(next_tokens, non_blocking=True)
        return DecodeStepResult(next_tokens, batch.readback, decision)

    def _decode_forward_step(
        self, state: _DecodeLoopState, new_tokens: torch.Tensor, batch: Sequence[int]
    ) -> Tuple[torch.Tensor, List[int]]:
        """One token for every local row: bind, stage, step, start the host append.

		Returns (next tokens on the device, the same on the host).
		"""
        started = time.perf_counter()
        sequences = [self._req._get_sequence_by_local(i) for i in batch]
        self._check_context_invariant(sequences)
        self._req._decode_verify_page_table(state, batch)
        max_seqlen = self._req._bind_decode_attention_metadata(sequences)
        self._req._decode_begin_deferred_kv(sequences)
        result = self.step(self._decode_stage(sequences, new_tokens, max_seqlen))
        self._req._decode_batch = None
        self._req._flush_deferred_kv_to_host()
        if self._req.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        self._req._cumulative_decode_steps += 1
        self._req._cumulative_decode_seconds += time.perf_counter() - started
        self._req.counters["decode_steps"] += 1
        return result.next_tokens, result.readback.tolist()

    def _decode_update_sequences(self, batch: Sequence[int], tokens: Sequence[int]):
        """Keep the step's tokens; a row that is done waits for the boundary and keeps its last token."""
        for local_idx, token in zip(batch, tokens):
            seq = self._req._get_sequence_by_local(local_idx)
            if not self._req._is_sequence_completed(seq):
                self._req._append_decoded_token(seq, token)

    def _decode_sync_completions(self, state: _DecodeLoopState, decode_uuids: Sequence[str]):
        """Every few steps: does any rank have a finished sequence? Then the boundary comes now (collective)."""
        if state.iteration % self._req.args.completion_sync_interval != 0:
            return
        completed, _ = self._sync.completed(decode_uuids)
        if completed:
            state.boundary_due = True

    def _assert_step_invariants(self, decode_uuids: Sequence[str], batch: Sequence[int]):
        """Everything that must hold after a step (BATCHGEN_DECODE_ASSERT=1): metadata, indexes, pools, tables."""
        problems = list(self._req.global_batch.validate_indexes())
        for seq in self._req.global_batch:
            problems += seq.validate_metadata(seq.uuid in self._req._uuid_to_local_map)
        manager = self._req.gpu_paged_kv_cache_manager
        expected = [self._req._local_to_global_id(i) for i in batch]
        if list(manager.slot_to_seq_id) != expected:
            problems.append(f"page table rows {manager.slot_to_seq_id} are not the batch's {expected}")
        for local_idx in batch:
            seq = self._req._get_sequence_by_local(local_idx)
            if manager.num_pages_of(seq.global_idx) != seq.gpu_pages_allocated:
                problems.append(
                    f"sequence {seq.uuid}: {manager.num_pages_of(seq.global_idx)} pages in the pool, "
                    f"{seq.gpu_pages_allocated} in its metadata"
                )
            if self._req.core_engine.host_paged_kv_worker_view.page_count(seq.global_idx) != seq.host_pages_allocated:
                problems.append(f"sequence {seq.uuid}: host pages differ between the pool and its metadata")
        manager.check_invariants()
        if problems:
            raise AssertionError("; ".join(problems))

    def _decode_cleanup(self, state: _DecodeLoopState):
        """Leave the loop with nothing in flight and no class-level binding to what this phase owned (collective)."""
        self._req._wait_pending_kv_append_tasks(sync_distributed_errors=True)
        if state.pending_load_uuids:
            raise RuntimeError(f"[SCHED_INVARIANT] the load of {state.pending_load_uuids} was never settled")
        self._req._unbind_attn_wrapper()
        self._req._disable_decode_watchdog()

    def _unbind_attn_wrapper(self):
        Attn_Wrapper.gpu_paged_kv_cache_manager = None
        AttnWrapperBase.gpu_paged_kv_manager_primary, AttnWrapperBase.gpu_paged_kv_manager_aux = None, None
        AttnWrapperBase.host_paged_kv_worker_view, AttnWrapperBase.host_paged_kv_worker_view_aux = None, None
        Attn_Wrapper.cur_batch = None
        AttnWrapperBase.cache_seqlens, AttnWrapperBase.position_ids, AttnWrapperBase.max_seqlen = None, None, None
        AttnWrapperBase.decode_page_table = None
        AttnWrapperBase.decode_plan, AttnWrapperBase.decode_plan_aux = None, None
        AttnWrapperBase.primary_slot_indices, AttnWrapperBase.aux_slot_indices = None, None
        AttnWrapperBase.kv_append_callback = None
        AttnWrapperBase.kv_append_callback_aux = None
        AttnWrapperBase.state_slots = None

    def decoding_continuous(self, new_tokens: torch.Tensor, decode_uuids: Sequence[str], batch: Sequence[int]):
        """Decode until nothing is left to decode or the watermark asks for a prefill (collective).

		Args:
			new_tokens: int64 [B], the newest token of each local row.
			decode_uuids: sequences decoding on all ranks, in global order.
			batch: local indices of this rank's rows, in the same order.
		"""
        decode_uuids, batch = list(decode_uuids), list(batch)
        self._req._decode_bind_attn_wrapper(batch)
        state = self._decode_init_state(decode_uuids)
        self._decode_initial_moe_sync(batch)
        self._req._enable_decode_watchdog()
        check = os.environ.get("BATCHGEN_DECODE_ASSERT") == "1"
        while decode_uuids:
            self._req._watchdog.feed()
            if state.boundary_due or state.iteration - state.last_boundary >= self._req.DECISION_INTERVAL:
                action, new_tokens, decode_uuids, batch = self._req._decode_handle_boundary(
                    state, new_tokens, decode_uuids, batch
                )
                if action == "stop":
                    break
                if action == "again":
                    continue
            state.iteration += 1
            new_tokens, tokens = self._req._decode_forward_step(state, new_tokens, batch)
            self._req._decode_update_sequences(batch, tokens)
            if check:
                self._assert_step_invariants(decode_uuids, batch)
            self._decode_sync_completions(state, decode_uuids)
            self._req._report_progress()
        self._decode_cleanup(state)

    def _wait_pending_kv_append_tasks(
        self, *, sync_distributed_errors: bool = False, defer_errors: bool = False
    ) -> int:
        """Wait for all host appends; returns how many there were.

		Errors are raised here, or on all ranks together (`sync_distributed_errors`, collective even when this rank has
		nothing to wait for), or kept for the next distributed wait (`defer_errors`).
		"""
        tasks = getattr(self._req, "_pending_kv_append_tasks", None) or []
        errors: List[str] = []
        for task in tasks:
            if task is None:
                continue
            try:
                task.wait()
            except Exception as error:
                errors.append(f"rank {self._req.rank}: {type(error).__name__}: {error}")
        if tasks and not errors and self._req.device.type == "cuda":
            torch.cuda.synchronize()
        self._req._pending_kv_append_tasks = []
        self._req._pending_kv_append_tensors = []
        if defer_errors:
            if not hasattr(self._req, "_deferred_kv_append_wait_errors"):
                self._req._deferred_kv_append_wait_errors = []
            self._req._deferred_kv_append_wait_errors.extend(errors)
            return len(tasks)
        errors = (getattr(self._req, "_deferred_kv_append_wait_errors", None) or []) + errors
        self._req._deferred_kv_append_wait_errors = []
        if sync_distributed_errors:
            gathered: List[Any] = [None] * self._req.world_size
            dist.all_gather_object(gathered, errors)
            errors = [error for part in gathered for error in part]
        if errors:
            raise RuntimeError("host KV append failed: " + "; ".join(errors))
        return len(tasks)

    def _rebuild_page_table_for_batch(self, batch: Sequence[int]):
        """Page table rows in batch order; sequences without GPU pages cannot have one and are dropped loudly."""
        manager = self._req.gpu_paged_kv_cache_manager
        if manager is None:
            return
        global_ids = []
        for local_idx in batch:
            global_id = self._req._local_to_global_id(local_idx)
            if manager.has_sequence(global_id):
                global_ids.append(global_id)
            else:
                logger.error("sequence %d is in the decode batch without GPU pages", global_id)
        if global_ids:
            manager.rebuild_page_table(global_ids)
        else:
            manager.clear_page_table()
        Attn_Wrapper.cur_batch = global_ids

    def _append_decode_kv_to_host_async(self, entries, global_ids, positions):
        """One task for all layers (BATCHGEN_KV_OFFLOAD_UVA_KERNEL, on by default) or one per layer.

		Layer 0 is always checked for NaN: it is the first place where a corrupt page shows.
		"""
        view = self._req.core_engine.host_paged_kv_worker_view
        if entries and bool(torch.isnan(entries[0][1]).any()):
            raise RuntimeError(f"NaN in the keys of layer {entries[0][0]} for sequences {list(global_ids)}")
        if os.environ.get("BATCHGEN_KV_OFFLOAD_UVA_KERNEL", "1") == "1":
            task = view.async_append_decode_kv_to_host_batched_kernel(entries, global_ids, positions)
            self._req._pending_kv_append_tasks.append(task)
        else:
            for layer_idx, k, v in entries:
                task = view.async_append_decode_kv_to_host(layer_idx, global_ids, k, v, positions)
                self._req._pending_kv_append_tasks.append(task)
        # The copies read these tensors until their task is waited for.
        self._req._pending_kv_append_tensors.append(entries)

    def _launch_async_load_new_sequences(self, local_ids: Sequence[int], existing_ids: Sequence[int]) -> Any:
        """Allocate pages for new local sequences and start their host-to-GPU load; the table stays the existing rows'."""
        from batchgen.batchgen_worker import _ceil_div

        manager = self._req.gpu_paged_kv_cache_manager
        pages = self._req._compute_two_page_buffer_allocation(local_ids)
        new_ids = list(pages)
        self._req._check_first_gpu_pages(pages)
        for global_id in new_ids:
            self._req._allocate_gpu_pages(self._req._global_to_uuid[global_id], pages[global_id])
        self._req._sequences_with_gpu_kv.update(new_ids)
        if isinstance(manager, DualKVCacheCoordinator):
            pointers = self._prepare_dual_kv_load_pointers(manager, new_ids, list(existing_ids) or None)
            self._req._async_load_tensors = pointers
            return self._launch_dual_host_kv_load(pointers)
        try:
            manager.rebuild_page_table(new_ids)
            k_ptrs, v_ptrs = manager.get_page_pointers()
        finally:
            if existing_ids:
                manager.rebuild_page_table(existing_ids)
            else:
                manager.clear_page_table()
        counts = torch.tensor(
            [_ceil_div(self._req._get_sequence_by_local(i).current_context_length - 1, self._req.PAGE_SIZE) for i in local_ids],
            dtype=torch.int64,
        )
        sequence_ids = torch.tensor(new_ids, dtype=torch.int64)
        self._req._async_load_tensors = (sequence_ids, counts, k_ptrs, v_ptrs)
        return self._req.core_engine.host_paged_kv_worker_view.async_load_layer_paged_kv_to_device(
            sequence_ids, counts, k_ptrs, v_ptrs
        )
