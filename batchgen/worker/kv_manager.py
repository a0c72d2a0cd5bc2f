"""Methods of BatchGenWorker: cut out of batchgen/batchgen_worker.py."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Protocol, Self, Sequence, Set, Tuple

from batchgen.kv import KVExhausted
from batchgen.sequence import SequenceStatus
from batchgen.worker.kv_planning import KvPlanner

if TYPE_CHECKING:
    from collections import Counter

    from batchgen.batchgen_worker import BatchGenWorkerArgs
    from batchgen.continuous_batching import NodeHostStats
    from batchgen.kv import KVStats
    from batchgen.sequence import QueryBookEntry, SequenceEntry
    from batchgen.worker.protocols import GpuKvBackend, HostKvBackend


class KvState(Protocol):
    """The worker as one request sees it: live, or a snapshot in which a plan is made.

    Created on first use, so hasattr() may be False: core_engine.
    """

    @property
    def PAGE_SIZE(self) -> int: ...

    def _get_sequence_by_local(self, local_idx: int) -> SequenceEntry: ...

    def _has_queued_work(self) -> bool: ...

    def _host_pages_held(self, global_id: int) -> int: ...

    def _load_host_kv_to_gpu(self, manager: Any, global_ids: Sequence[int]) -> Any: ...

    def _local_to_global_id(self, local_idx: int) -> int: ...

    def _read_host_kv_stats(self) -> Optional[KVStats]: ...

    def _release_gpu_kv_pages(self, local_ids: Sequence[int]) -> Any: ...

    @property
    def _sequences_with_gpu_kv(self) -> Set[int]: ...

    @property
    def _uuid_to_local_map(self) -> Dict[str, int]: ...

    @property
    def args(self) -> BatchGenWorkerArgs: ...

    @property
    def core_engine(self) -> Any: ...

    @property
    def counters(self) -> Counter: ...

    @property
    def global_batch(self) -> Any: ...

    @property
    def gpu_paged_kv_cache_manager(self) -> Any | None: ...

    @property
    def query_book(self) -> Dict[int, QueryBookEntry]: ...

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...


class KVCacheManager(KvPlanner):
    """Methods of BatchGenWorker, without state of its own.

    Attributes stay on what `on` binds and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    _bound_req: KvState | None = None

    def __init__(self, *, gpu_kv: GpuKvBackend, host_kv: HostKvBackend) -> None:
        self._gpu_kv = gpu_kv
        self._host_kv = host_kv

    @classmethod
    def for_worker(cls, worker: Any) -> Self:
        """Handles on a worker: the worker itself, or what the recipe says is read from it."""
        from batchgen.worker.backends.kv import GpuKv, HostKv

        return cls(gpu_kv=GpuKv(lambda: worker), host_kv=HostKv(lambda: worker)).on(worker)

    def on(self, req: KvState) -> Self:
        """This handler for one object: a shallow copy, bound to it."""
        bound = copy.copy(self)
        bound._bound_req = req
        return bound

    @property
    def _req(self) -> KvState:
        """What `on` bound."""
        if self._bound_req is None:
            raise RuntimeError("KVCacheManager is not bound: call on(req) first")
        return self._bound_req

    def _compute_two_page_buffer_allocation(self, local_ids: Sequence[int]) -> Dict[int, int]:
        """Pages to allocate per local sequence: its context and a buffer ahead of it. Read before the initial mark:
		the same getter answers with the smaller extension buffer afterwards."""
        allocation = {}
        for local_idx in local_ids:
            seq = self._req._get_sequence_by_local(local_idx)
            allocation[seq.global_idx] = seq.get_gpu_pages_for_two_page_buffer()
        return allocation

    def _allocate_gpu_kv_two_page_buffer(self, local_ids: Sequence[int], load_from_host: bool = True) -> bool:
        """Allocate context plus buffer for new local sequences, load their KV, and rebuild the table over all active.

		False, with nothing changed, when the pool has too few free pages.
		"""
        if not local_ids:
            return True
        manager = self._req.gpu_paged_kv_cache_manager
        pages = self._compute_two_page_buffer_allocation(local_ids)
        if sum(pages.values()) > self._gpu_kv.free_pages():
            return False
        global_ids = list(pages)
        self._check_first_gpu_pages(pages)
        for local_idx in local_ids:
            seq = self._req._get_sequence_by_local(local_idx)
            self._gpu_kv.allocate_pages(seq.uuid, pages[seq.global_idx])
            seq.gpu_pages_allocated = pages[seq.global_idx]
            seq.mark_initial_gpu_reservation()
            self._req._sequences_with_gpu_kv.add(seq.global_idx)
        if load_from_host:
            manager.rebuild_page_table(global_ids)
            self._req._load_host_kv_to_gpu(manager, global_ids)
        manager.rebuild_page_table(sorted(self._req._sequences_with_gpu_kv))
        return True

    def _extend_gpu_kv_allocation(self, uuids: Sequence[str]) -> bool:
        """Extend local sequences to their next buffer, all or nothing; rank-local."""
        wanted = []
        for uuid in uuids:
            if uuid not in self._req._uuid_to_local_map:
                continue
            seq = self._req.global_batch.get_sequence(uuid)
            extra = seq.get_additional_gpu_pages_needed()
            if extra > 0:
                wanted.append((seq, extra))
        if sum(extra for _, extra in wanted) > self._gpu_kv.free_pages():
            return False
        for seq, _ in wanted:
            # KeyError, before anything is extended, for one that has no pages.
            self._req.gpu_paged_kv_cache_manager.num_pages_of(seq.global_idx)
        for seq, extra in wanted:
            new_pages = self._gpu_kv.allocate_pages(seq.uuid, extra)
            seq.gpu_pages_allocated += len(new_pages)
            self._req.counters["gpu_pages_extended"] += len(new_pages)
        return True

    def _put_sequences_onhold(self, uuids: Sequence[str]):
        """Boundary form: the decision is already the same on all ranks, so the owner frees and all ranks mark."""
        local_ids = [self._req._uuid_to_local_map[uuid] for uuid in uuids if uuid in self._req._uuid_to_local_map]
        if local_ids:
            self._req._release_gpu_kv_pages(local_ids)
        for uuid in uuids:
            self._req.global_batch.get_sequence(uuid).gpu_pages_allocated = 0
            self._req.global_batch.update_status(uuid, SequenceStatus.ON_HOLD)
            self._req.counters["holds"] += 1

    def _get_sequence_token_budget(self, sequence_id: int) -> int:
        """Tokens a local sequence may ever hold: its original prompt and everything it may decode.

		Memoised on its query book entry. An eviction moves decoded tokens into the prompt and leaves this as it is.

		Raises:
			RuntimeError: the query book is empty. KeyError: the local index has no entry or no sequence.
		"""
        if not self._req.query_book:
            raise RuntimeError(f"no token budget for local sequence {sequence_id}: the query book is empty")
        if sequence_id not in self._req.query_book:
            raise KeyError(f"local sequence {sequence_id} has no query book entry")
        entry = self._req.query_book[sequence_id]
        if entry.kv_token_budget > 0:
            return entry.kv_token_budget
        seq = self._req._get_sequence_by_local(sequence_id)
        entry.kv_token_budget = seq.original_prompt_length + seq.original_max_decode_length
        return entry.kv_token_budget

    def _compute_host_kv_sequence_tokens(self, local_ids: Sequence[int]) -> List[int]:
        """Token budgets in the order of `local_ids`; fails as the single one does."""
        return [self._get_sequence_token_budget(local_idx) for local_idx in local_ids]

    def _check_first_gpu_pages(self, pages: Dict[int, int]):
        """Raise what would stop a first allocation of `pages`, {global id: pages}, while nothing has changed.

		Raises:
			ValueError: one of the sequences has pages already. KVExhausted: the pool has too few for all of them.
		"""
        manager = self._req.gpu_paged_kv_cache_manager
        for global_id in pages:
            if manager.has_sequence(global_id):
                raise ValueError(f"sequence {global_id} already holds {manager.num_pages_of(global_id)} GPU pages")
        need, free = sum(pages.values()), self._gpu_kv.free_pages()
        if need > free:
            raise KVExhausted(manager.config.name, need, free)

    def _check_host_growth(self, pages: Dict[int, int]):
        """Raise what would stop local sequences from growing by `pages`, {global id: pages}, while nothing has changed.

		What another rank of the node takes in between is not seen: then KVExhausted comes with some of them grown.

		Raises:
			KeyError: one of the sequences is not registered. KVExhausted: the node has too few pages for all of them.
		"""
        for global_id in pages:
            self._req._host_pages_held(global_id)
        need, free = sum(pages.values()), self._get_host_kv_free_pages()
        if need > free:
            raise KVExhausted("host", need, free)

    def _reserve_whole_budget(self, local_ids: Sequence[int], sequence_tokens: Sequence[int]):
        """Reserve `sequence_tokens[i]` tokens for local sequence i and load its KV from the host, synchronously.

		KVExhausted, with nothing reserved, when the pool has too few free pages.
		"""
        from batchgen.batchgen_worker import _ceil_div

        manager = self._req.gpu_paged_kv_cache_manager
        global_ids = [self._req._local_to_global_id(local_idx) for local_idx in local_ids]
        pages = {
            global_id: _ceil_div(tokens, self._req.PAGE_SIZE) for global_id, tokens in zip(global_ids, sequence_tokens)
        }
        self._check_first_gpu_pages(pages)
        for local_idx in local_ids:
            seq = self._req._get_sequence_by_local(local_idx)
            seq.gpu_pages_allocated = len(self._gpu_kv.allocate_pages(seq.uuid, pages[seq.global_idx]))
            seq.mark_initial_gpu_reservation()
            self._req._sequences_with_gpu_kv.add(seq.global_idx)
        manager.rebuild_page_table(global_ids)
        self._req._load_host_kv_to_gpu(manager, global_ids)
        manager.rebuild_page_table(sorted(self._req._sequences_with_gpu_kv))

    def _release_gpu_kv_pages(self, local_ids: Sequence[int]):
        """Free the GPU pages of local sequences. KeyError, with nothing freed, for one that has none.

		Keeps `had_initial_gpu_reservation`: a sequence that comes back gets the extension buffer.
		"""
        sequences = [self._req._get_sequence_by_local(local_idx) for local_idx in local_ids]
        global_ids = [seq.global_idx for seq in sequences]
        if len(set(global_ids)) != len(global_ids):
            raise KeyError(f"a sequence is named twice in a release of {global_ids}")
        for global_id in global_ids:
            # KeyError, before anything is freed, for one that has no pages.
            self._req.gpu_paged_kv_cache_manager.num_pages_of(global_id)
        for seq in sequences:
            self._gpu_kv.release_pages(seq.uuid)
        self._release_kda_state_slots(global_ids)
        for seq in sequences:
            self._req._sequences_with_gpu_kv.discard(seq.global_idx)
            seq.gpu_pages_allocated = 0

    def _release_kda_state_slots(self, global_ids: Sequence[int]):
        """Give back the recurrent-state slots that these sequences hold; those without one are passed over."""
        pool = getattr(self._req.core_engine, "state_slot_pool", None)
        if pool is None:
            return
        held = [global_id for global_id in global_ids if pool.has(global_id)]
        if held:
            pool.release(held)

    def _get_host_kv_free_pages(self) -> int:
        """Free pages of this node's host pool, as of now; all ranks of the node draw on them."""
        stats = self._req._read_host_kv_stats()
        return 0 if stats is None else stats.num_free_pages

    def _get_host_kv_utilization(self) -> Dict[str, int]:
        """Host pool of this rank's node, as of now, and the sequences of the node's ranks that hold pages of it."""
        from batchgen.batchgen_worker import NUM_GPUS_PER_NODE

        free, used, total = 0, 0, 0
        stats = self._req._read_host_kv_stats()
        if stats is not None:
            free, used, total = stats.num_free_pages, stats.num_used_pages, stats.num_total_pages
        node_id = self._req.rank // NUM_GPUS_PER_NODE
        first = node_id * NUM_GPUS_PER_NODE
        ranks = range(first, min(first + NUM_GPUS_PER_NODE, self._req.world_size))

        def count(status: SequenceStatus) -> int:
            return sum(len(self._req.global_batch.get_sequences_for_rank_with_status(rank, status)) for rank in ranks)

        in_decode = count(SequenceStatus.IN_DECODE)
        onhold = count(SequenceStatus.ON_HOLD)
        prefilled = count(SequenceStatus.PREFILLED)
        return {
            "rank": self._req.rank,
            "node_id": node_id,
            "num_free_pages": free,
            "num_total_pages": total,
            "num_used_pages": used,
            "free_percent": int(free / total * 100) if total > 0 else 100,
            "num_in_decode": in_decode,
            "num_onhold": onhold,
            "num_prefilled": prefilled,
            "num_valid_sequences": in_decode + onhold + prefilled,
        }

    def _decide_watermark_trigger(self, by_node: Dict[int, Dict[str, int]]) -> bool:
        """The answer of the watermark check, from the utilization of each node and the replicated work that waits."""
        max_free_percent = max(utilization["free_percent"] for utilization in by_node.values())
        has_evicted = self._req.args.enable_host_kv_eviction and self._req.global_batch.has_status(SequenceStatus.EVICTED)
        return max_free_percent > self._req.args.host_kv_watermark and (self._req._has_queued_work() or has_evicted)

    def _host_pages_kept_back(self, stats: Sequence[NodeHostStats]) -> Dict[int, int]:
        """Pages by node that fresh sequences leave free, for the growth of those already there."""
        host_kv_eviction_watermark = self._req.args.host_kv_eviction_watermark
        return {node.node_id: node.total * host_kv_eviction_watermark // 100 for node in stats}

    def _plan_moves(
        self, gathered: Sequence[Tuple[Dict[str, int], Dict[str, int]]]
    ) -> List[Tuple[str, int, int]]:
        """The moves, from what every rank has told: (its node's utilization, host pages of what may move)."""
        from batchgen.batchgen_worker import NUM_GPUS_PER_NODE, _ceil_div

        num_nodes = _ceil_div(self._req.world_size, NUM_GPUS_PER_NODE)
        used: Dict[int, int] = {}
        total: Dict[int, int] = {}
        owner: Dict[str, int] = {}
        cost: Dict[str, int] = {}
        for rank, (utilization, owned) in enumerate(gathered):
            used.setdefault(utilization["node_id"], utilization["num_used_pages"])
            total.setdefault(utilization["node_id"], utilization["num_total_pages"])
            owner.update((uuid, rank) for uuid in owned)
            cost.update(owned)

        target = sum(used.values()) // num_nodes
        received = dict.fromkeys(used, 0)
        operations: List[Tuple[str, int, int]] = []
        for source in sorted(used, key=lambda node: (-used[node], node)):
            candidates = sorted(
                (uuid for uuid in owner if owner[uuid] // NUM_GPUS_PER_NODE == source),
                key=lambda u: (
                    self._req.global_batch.get_sequence(u).kv_token_budget,
                    self._req.global_batch.get_sequence(u).global_idx,
                ),
            )
            for uuid in candidates:
                if used[source] <= target:
                    break
                with_room = [
                    node
                    for node in used
                    if node != source and used[node] + cost[uuid] <= min(total[node], used[source] - 1)
                ]
                if not with_room:
                    continue
                destination = min(with_room, key=lambda node: (used[node], node))
                first = destination * NUM_GPUS_PER_NODE
                ranks_there = min(first + NUM_GPUS_PER_NODE, self._req.world_size) - first
                operations.append((uuid, owner[uuid], first + received[destination] % ranks_there))
                received[destination] += 1
                used[source] -= cost[uuid]
                used[destination] += cost[uuid]
        return operations

    def _grow_host_kv(self, uuids: Sequence[str], pages: Sequence[int]):
        """Grow host allocations: the owner's pool first, then the metadata of all ranks."""
        mine = {
            self._req.global_batch.get_sequence(uuid).global_idx: count
            for uuid, count in zip(uuids, pages)
            if uuid in self._req._uuid_to_local_map
        }
        self._check_host_growth(mine)
        for uuid, count in zip(uuids, pages):
            seq = self._req.global_batch.get_sequence(uuid)
            if seq.global_idx in mine:
                self._host_kv.allocate_pages(uuid, count)
            seq.host_pages_allocated += count
            seq.host_token_capacity = seq.host_pages_allocated * self._req.PAGE_SIZE
            self._req.counters["host_growths"] += 1
