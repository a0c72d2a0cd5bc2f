"""Methods of BatchGenWorker: cut out of batchgen/batchgen_worker.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Protocol, Sequence, Set, Tuple

import torch
import torch.distributed as dist

from batchgen.sequence import SequenceStatus

if TYPE_CHECKING:
    from batchgen.sequence import SequenceEntry


class ReplicatedBatch(Protocol):
    def __iter__(self) -> Iterator[SequenceEntry]: ...
    def get_sequence(self, uuid: str) -> SequenceEntry: ...


class SyncRanks(Protocol):
    """Where this process stands among the ranks."""

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...


class SyncedSequences(Protocol):
    """Which sequences this rank owns, when one is done, and which of its fields only its owner advances."""

    @property
    def _REPLICATED_FIELDS(self) -> Any: ...

    @property
    def _global_to_uuid(self) -> Dict[int, str]: ...

    def _is_sequence_completed(self, seq: SequenceEntry) -> bool: ...

    @property
    def _uuid_to_local_map(self) -> Dict[str, int]: ...


class SyncCoordinator:
    """Methods of BatchGenWorker, without state of its own.

    Attributes stay on the worker and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    def __init__(
        self,
        *,
        batch: Callable[[], ReplicatedBatch],
        ranks: SyncRanks,
        sequences: SyncedSequences,
    ) -> None:
        self._read_batch = batch
        self._ranks = ranks
        self._sequences = sequences

    @classmethod
    def for_worker(cls, worker: Any) -> SyncCoordinator:
        """Handles on a worker: the worker itself, or what the recipe says is read from it."""
        return cls(batch=lambda: worker.global_batch, ranks=worker, sequences=worker)

    @property
    def _batch(self) -> ReplicatedBatch:
        """Read at each use, for another object may have taken its place."""
        return self._read_batch()

    def _sync_completion_status_tensor(self, decode_uuids: Sequence[str]) -> Tuple[Set[str], List[str]]:
        """Which of the decoding sequences are done on the rank that owns them (collective MAX).

		Returns (completed, active); a rank that does not own a completed sequence notes it.
		"""
        flags = torch.zeros(len(decode_uuids), dtype=torch.int32)
        for i, uuid in enumerate(decode_uuids):
            if uuid in self._sequences._uuid_to_local_map:
                flags[i] = int(self._sequences._is_sequence_completed(self._batch.get_sequence(uuid)))
        dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        done = flags.tolist()
        completed = {uuid for uuid, flag in zip(decode_uuids, done) if flag}
        return completed, [uuid for uuid, flag in zip(decode_uuids, done) if not flag]

    def _sync_decode_uuids_tensor(self, decode_uuids: Sequence[str]) -> List[str]:
        """The sequences that every rank wants to decode (collective MIN), in global order."""
        known = sorted(seq.global_idx for seq in self._batch if seq.status != SequenceStatus.COMPLETED)
        wanted = {self._batch.get_sequence(uuid).global_idx for uuid in decode_uuids}
        flags = torch.tensor([int(global_idx in wanted) for global_idx in known], dtype=torch.int32)
        dist.all_reduce(flags, op=dist.ReduceOp.MIN)
        return [self._sequences._global_to_uuid[global_idx] for global_idx, flag in zip(known, flags.tolist()) if flag]

    def _sync_sequence_metadata(self, uuids: Sequence[str]) -> None:
        """Owners publish the fields that only they advance; all ranks take them over (collective)."""
        mine = {
            uuid: self._owned_metadata(self._batch.get_sequence(uuid))
            for uuid in uuids
            if uuid in self._sequences._uuid_to_local_map
        }
        gathered: List[Any] = [None] * self._ranks.world_size
        dist.all_gather_object(gathered, mine)
        for rank, part in enumerate(gathered):
            if rank == self._ranks.rank:
                continue
            for uuid, metadata in part.items():
                self._absorb_metadata(self._batch.get_sequence(uuid), metadata)

    def _owned_metadata(self, seq: SequenceEntry) -> Dict[str, Any]:
        return {name: getattr(seq, name) for name in self._sequences._REPLICATED_FIELDS}

    def _absorb_metadata(self, seq: SequenceEntry, metadata: Dict[str, Any]) -> None:
        for name in self._sequences._REPLICATED_FIELDS:
            setattr(seq, name, metadata[name])

    def _check_boundary_desync(self, decode_uuids: Sequence[str]) -> None:
        """All ranks must enter a boundary with the same sequences (BATCHGEN_CB_LOG=DEBUG on every rank; collective)."""
        views: List[Any] = [None] * self._ranks.world_size
        dist.all_gather_object(views, list(decode_uuids))
        for rank, view in enumerate(views):
            if view != views[0]:
                raise RuntimeError(
                    f"[SCHED_INVARIANT] rank {rank} decodes {view}, rank 0 decodes {views[0]}"
                )
