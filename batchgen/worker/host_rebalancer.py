"""Methods of BatchGenWorker: cut out of batchgen/batchgen_worker.py."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Dict, List, Protocol, Sequence, Set, Tuple

import torch
import torch.distributed as dist

from batchgen.sequence import SequenceStatus

if TYPE_CHECKING:
    from collections import Counter

    from batchgen.kv import KVPoolConfig
    from batchgen.sampling import TokenLogprob
    from batchgen.sequence import QueryBookEntry, SequenceEntry

logger = logging.getLogger("batchgen.worker")


class RebalancedBatch(Protocol):
    def get_sequence(self, uuid: str) -> SequenceEntry: ...
    def update_status(self, uuid: str, status: SequenceStatus) -> None: ...
    def assign_rank(self, uuid: str, rank: int) -> None: ...


class HeldPages(Protocol):
    def has_sequence(self, sequence_id: int) -> bool: ...


class HostPages(Protocol):
    @property
    def config(self) -> KVPoolConfig: ...
    def page_count(self, gid: int) -> int: ...
    def read_sequence_kv_to_cpu(
        self, gid: int, num_tokens: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]: ...
    def write_sequence_kv_from_cpu(self, gid: int, k: torch.Tensor, v: torch.Tensor | None) -> None: ...


class SequencePages(Protocol):
    """Pages of single sequences, the plan of what moves, and the index-key pool where there is one.

    Created on first use, so hasattr() may be False: core_engine.
    """

    @property
    def PAGE_SIZE(self) -> int: ...

    def _allocate_host_pages(self, uuid: str, n: int) -> List[int]: ...

    def _plan_kv_migration(self) -> List[Tuple[str, int, int]]: ...

    def _release_gpu_kv_pages(self, local_ids: Sequence[int]) -> Any: ...

    def _release_host_kv_pages(self, uuids: Sequence[str]) -> Any: ...

    def _release_kda_state_slots(self, global_ids: Sequence[int]) -> Any: ...

    @property
    def core_engine(self) -> Any: ...


class MovingSequences(Protocol):
    """Tokens and local indices of the sequences that this rank owns."""

    def _local_to_global_id(self, local_idx: int) -> int: ...

    def _register_migrated_sequence(
        self,
        seq: SequenceEntry,
        input_ids: torch.Tensor,
        decoded_tokens: torch.Tensor,
        logprobs: List[TokenLogprob],
    ) -> Any: ...

    def _release_local_sequence(self, uuid: str) -> Any: ...

    @property
    def _uuid_to_local_map(self) -> Dict[str, int]: ...

    @property
    def query_book(self) -> Dict[int, QueryBookEntry]: ...


class MetadataSync(Protocol):
    """What owners publish about their sequences."""

    def _sync_sequence_metadata(self, uuids: Sequence[str]) -> None: ...


class MigrationRanks(Protocol):
    """Where this process stands among the ranks, and the group it migrates over."""

    def _get_or_create_gloo_group(self) -> Any: ...

    @property
    def rank(self) -> int: ...


class RebalanceRecord(Protocol):
    """What has been done: counters, and the moves of the last rebalance that this rank took part in.

    Created on first use, so hasattr() may be False: _migrated_sequences.
    """

    _migrated_sequences: list[Any]

    @property
    def counters(self) -> Counter: ...


class HostKVRebalancer:
    """Methods of BatchGenWorker, without state of its own.

    Attributes stay on the worker and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    def __init__(
        self,
        *,
        batch: Callable[[], RebalancedBatch],
        gpu_pool: Callable[[], HeldPages],
        host_pool: Callable[[], HostPages],
        pages: SequencePages,
        sequences: MovingSequences,
        sync: MetadataSync,
        ranks: MigrationRanks,
        record: RebalanceRecord,
    ) -> None:
        self._read_batch = batch
        self._read_gpu_pool = gpu_pool
        self._read_host_pool = host_pool
        self._pages = pages
        self._sequences = sequences
        self._sync = sync
        self._ranks = ranks
        self._record = record

    @classmethod
    def for_worker(cls, worker: Any) -> HostKVRebalancer:
        """Handles on a worker: the worker itself, or what the recipe says is read from it."""
        return cls(
            batch=lambda: worker.global_batch,
            gpu_pool=lambda: worker.gpu_paged_kv_cache_manager,
            host_pool=lambda: worker.core_engine.host_paged_kv_worker_view,
            pages=worker,
            sequences=worker,
            sync=worker,
            ranks=worker,
            record=worker,
        )

    @property
    def _batch(self) -> RebalancedBatch:
        """Read at each use, for another object may have taken its place."""
        return self._read_batch()

    @property
    def _gpu_pool(self) -> HeldPages:
        """Read at each use, for another object may have taken its place."""
        return self._read_gpu_pool()

    @property
    def _host_pool(self) -> HostPages:
        """Read at each use, for another object may have taken its place."""
        return self._read_host_pool()

    def _put_sequences_on_hold(self, uuids: Sequence[str]) -> None:
        """Collective form, for leaving the decode phase early: sync metadata first, free what has pages, barrier.

		Keeps `had_initial_gpu_reservation`: a sequence that comes back gets the extension buffer.
		"""
        self._sync._sync_sequence_metadata(uuids)
        manager = self._gpu_pool
        local_ids = []
        for uuid in uuids:
            local_idx = self._sequences._uuid_to_local_map.get(uuid)
            if local_idx is not None and manager.has_sequence(self._sequences._local_to_global_id(local_idx)):
                local_ids.append(local_idx)
        if local_ids:
            self._pages._release_gpu_kv_pages(local_ids)
        for uuid in uuids:
            self._batch.get_sequence(uuid).gpu_pages_allocated = 0
            self._batch.update_status(uuid, SequenceStatus.ON_HOLD)
            self._record.counters["holds"] += 1
        dist.barrier()

    def _group_migrations_for_parallel_execution(
        self, operations: Sequence[Tuple[str, int, int]]
    ) -> List[List[Tuple[str, int, int]]]:
        """Rounds of moves that may run at the same time, each move in the first round that has room for it.

		No rank is twice in a round, on either side, and no node is a source twice: its link carries one transfer.
		"""
        from batchgen.batchgen_worker import NUM_GPUS_PER_NODE

        rounds: List[List[Tuple[str, int, int]]] = []
        busy_ranks: List[Set[int]] = []
        busy_sources: List[Set[int]] = []
        for operation in operations:
            _, from_rank, to_rank = operation
            source = from_rank // NUM_GPUS_PER_NODE
            for index in range(len(rounds) + 1):
                if index == len(rounds):
                    rounds.append([])
                    busy_ranks.append(set())
                    busy_sources.append(set())
                if source not in busy_sources[index] and not busy_ranks[index] & {from_rank, to_rank}:
                    rounds[index].append(operation)
                    busy_ranks[index].update((from_rank, to_rank))
                    busy_sources[index].add(source)
                    break
        return rounds

    def _execute_kv_migrations_parallel(self, operations: Sequence[Tuple[str, int, int]]) -> None:
        """Run the moves round by round, all ranks in step (collective)."""
        group = self._ranks._get_or_create_gloo_group()
        dist.barrier(group=group)
        for migration_round in self._group_migrations_for_parallel_execution(operations):
            for uuid, from_rank, to_rank in migration_round:
                if self._ranks.rank in (from_rank, to_rank):
                    self._execute_single_kv_migration(uuid, from_rank, to_rank)
            dist.barrier(group=group)

    def _execute_single_kv_migration(self, uuid: str, from_rank: int, to_rank: int) -> None:
        """Move one sequence with its host KV, tokens and logprobs; runs on these two ranks only (point to point).

		The header goes first and says which tensors follow and how long they are; both sides then walk the same list.
		The replicated metadata must be in sync: the new owner allocates `host_token_capacity` from its own copy.

		Raises:
			KVExhausted: the destination's pool is full. RuntimeError: the two sides' pools or page counts differ.
		"""
        from batchgen.batchgen_worker import BATCHGEN_CB_DEBUG, _ceil_div

        group = self._ranks._get_or_create_gloo_group()
        sending = self._ranks.rank == from_rank
        seq = self._batch.get_sequence(uuid)
        global_id = seq.global_idx
        view = self._host_pool
        view_aux = getattr(self._pages.core_engine, "host_paged_kv_worker_view_aux", None)

        def transfer(tensor: torch.Tensor) -> None:
            if tensor.numel() == 0:
                return
            if self._ranks.rank == from_rank:
                dist.send(tensor, dst=to_rank, group=group)
            else:
                dist.recv(tensor, src=from_rank, group=group)

        def landing(pool: Any, tokens: int) -> torch.Tensor:
            config = pool.config
            shape = (config.num_layers, tokens, config.num_kv_heads, config.head_dim)
            return torch.empty(shape, dtype=config.dtype)

        header = torch.empty(6, dtype=torch.int64)
        if sending:
            entry = self._sequences.query_book[self._sequences._uuid_to_local_map[uuid]]
            num_tokens = seq.current_context_length - 1
            k, v = view.read_sequence_kv_to_cpu(global_id, num_tokens)
            k_aux = None if view_aux is None else view_aux.read_sequence_kv_to_cpu(global_id, num_tokens)[0]
            # Clones: both are views of buffers that the next owner of the row overwrites.
            input_ids = entry.encoded_prompt.clone()
            decoded_tokens = entry.decoded_tokens[:, : seq.decoded_length].clone()
            state = pickle.dumps((entry.logprobs, seq._rep_last_token, seq._rep_count))
            payload = torch.frombuffer(bytearray(state), dtype=torch.uint8)
            lengths = (input_ids.shape[1], decoded_tokens.shape[1], payload.numel())
            header.copy_(torch.tensor([num_tokens, v is not None, k_aux is not None, *lengths]))
            transfer(header)
        else:
            transfer(header)
            num_tokens, has_v, has_aux, prompt_length, decoded_length, payload_bytes = header.tolist()
            if bool(has_v) != view.config.has_value or bool(has_aux) != (view_aux is not None):
                raise RuntimeError(
                    f"sequence {uuid} comes from rank {from_rank} with values: {bool(has_v)}, index keys: "
                    f"{bool(has_aux)}; the host pools of rank {to_rank} are of another kind"
                )
            self._pages._allocate_host_pages(uuid, _ceil_div(seq.host_token_capacity, self._pages.PAGE_SIZE))
            if view.page_count(global_id) != seq.host_pages_allocated:
                raise RuntimeError(
                    f"sequence {uuid} held {seq.host_pages_allocated} host pages on rank {from_rank} and got "
                    f"{view.page_count(global_id)} on rank {to_rank}"
                )
            k = landing(view, num_tokens)
            v = landing(view, num_tokens) if has_v else None
            k_aux = landing(view_aux, num_tokens) if has_aux else None
            input_ids = torch.empty((1, prompt_length), dtype=torch.int64)
            decoded_tokens = torch.empty((1, decoded_length), dtype=torch.int64)
            payload = torch.empty(payload_bytes, dtype=torch.uint8)

        for tensor in (k, v, k_aux, input_ids, decoded_tokens, payload):
            if tensor is not None:
                transfer(tensor)

        if sending:
            self._pages._release_host_kv_pages([uuid])
            self._pages._release_kda_state_slots([global_id])
            self._sequences._release_local_sequence(uuid)
        else:
            view.write_sequence_kv_from_cpu(global_id, k, v)
            if view_aux is not None:
                view_aux.write_sequence_kv_from_cpu(global_id, k_aux, None)
            logprobs, seq._rep_last_token, seq._rep_count = pickle.loads(bytes(payload.tolist()))
            self._sequences._register_migrated_sequence(seq, input_ids, decoded_tokens, logprobs)
        if not hasattr(self._record, "_migrated_sequences"):
            self._record._migrated_sequences = []
        self._record._migrated_sequences.append((uuid, from_rank, to_rank))
        if BATCHGEN_CB_DEBUG:
            logger.info("moved sequence %s, %d tokens of KV, rank %d -> %d", uuid, num_tokens, from_rank, to_rank)

    def _rebalance_host_kv(self) -> int:
        """Even out the host pools of the nodes; returns how many sequences moved (collective).

		In this order. The old owners publish their sequences' metadata while the local maps still name them as
		owners: afterwards nobody could, and the new ones would start from what they knew last. Then KV and local maps
		move, at both ends at once. Then the rank changes, on all ranks. The barrier keeps everybody from deciding
		anything while a rank still has the old picture.
		"""
        operations = self._pages._plan_kv_migration()
        if not operations:
            return 0
        self._record._migrated_sequences = []
        self._sync._sync_sequence_metadata([uuid for uuid, _, _ in operations])
        self._execute_kv_migrations_parallel(operations)
        for uuid, _, to_rank in operations:
            self._batch.assign_rank(uuid, to_rank)
        dist.barrier()
        self._record.counters["migrations"] += len(operations)
        sent = sum(from_rank == self._ranks.rank for _, from_rank, _ in self._record._migrated_sequences)
        if self._record._migrated_sequences:
            logger.info(
                "rank %d: host KV rebalanced, %d sequences sent and %d received",
                self._ranks.rank,
                sent,
                len(self._record._migrated_sequences) - sent,
            )
        return len(operations)
