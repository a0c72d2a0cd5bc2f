"""The executor and the coordinator of a live worker, as the decode scheduler may see them.

The worker is asked for at each call, and it for its model, adapter and captures: all may be other ones by then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from batchgen.cuda_graph import BatchState
from batchgen.sequence import SequenceEntry
from batchgen.worker.decode_protocols import DecodeModel, GraphAdapter, GraphReplays, ParallelRows
from batchgen.worker.decode_types import DecodeBatch, DecodeOutputs, GraphDecision
from batchgen.worker.executor import ModelExecutor
from batchgen.worker.host_rebalancer import HostKVRebalancer
from batchgen.worker.sync import SyncCoordinator


class Executor:
    """`ModelExecutorBackend`: a `ModelExecutor`, and the objects that it runs the model with."""

    def __init__(self, worker: Callable[[], Any]) -> None:
        self._worker = worker

    @property
    def model(self) -> DecodeModel:
        model: DecodeModel = self._worker().model
        return model

    @property
    def adapter(self) -> GraphAdapter | None:
        adapter: GraphAdapter | None = self._worker()._cuda_graph_adapter
        return adapter

    @property
    def replays(self) -> GraphReplays:
        replays: GraphReplays = self._worker()._cuda_graph_manager
        return replays

    @property
    def parallel(self) -> ParallelRows:
        parallel: ParallelRows = self._worker().parallel_manager
        return parallel

    @property
    def rebalancer(self) -> Rebalancer:
        return Rebalancer(self._worker)

    @property
    def batch(self) -> DecodeBatch | None:
        batch: DecodeBatch | None = self._worker()._decode_batch
        return batch

    def forward_decode(self, batch: DecodeBatch) -> DecodeOutputs:
        outputs: DecodeOutputs = self._executor._decode_run_eager(batch)
        return outputs

    def batch_state(
        self, sequences: Sequence[SequenceEntry], new_tokens: torch.Tensor, max_seqlen: int
    ) -> BatchState:
        state: BatchState = self._worker()._decode_make_batch_state(sequences, new_tokens, max_seqlen)
        return state

    def decide(self, batch_state: BatchState) -> GraphDecision:
        decision: GraphDecision = self._executor._decode_graph_decision(batch_state)
        return decision

    def compare_replay(
        self, batch_state: BatchState, inputs: dict[str, torch.Tensor], outputs: dict[str, torch.Tensor]
    ) -> None:
        self._executor._decode_compare_graph(batch_state, inputs, outputs)

    def capture_graph(self) -> None:
        self._executor._capture_cuda_graph_for_batch()

    @property
    def _executor(self) -> Any:
        return ModelExecutor.for_worker(self._worker())


class Rebalancer:
    """`HostKVRebalancer` of the scheduler: the handler of that name."""

    def __init__(self, worker: Callable[[], Any]) -> None:
        self._worker = worker

    def put_on_hold(self, uuids: Sequence[str]) -> None:
        HostKVRebalancer.for_worker(self._worker())._put_sequences_on_hold(uuids)


class Sync:
    """`SyncCoordinator` of the scheduler: the handler of that name."""

    def __init__(self, worker: Callable[[], Any]) -> None:
        self._worker = worker

    def completed(self, decode_uuids: Sequence[str]) -> tuple[set[str], list[str]]:
        done: tuple[set[str], list[str]] = self._sync._sync_completion_status_tensor(decode_uuids)
        return done

    def agreed(self, decode_uuids: Sequence[str]) -> list[str]:
        uuids: list[str] = self._sync._sync_decode_uuids_tensor(decode_uuids)
        return uuids

    def publish(self, uuids: Sequence[str]) -> None:
        self._sync._sync_sequence_metadata(uuids)

    def owned(self, seq: SequenceEntry) -> dict[str, Any]:
        metadata: dict[str, Any] = self._sync._owned_metadata(seq)
        return metadata

    def absorb(self, seq: SequenceEntry, metadata: dict[str, Any]) -> None:
        self._sync._absorb_metadata(seq, metadata)

    def check_alike(self, decode_uuids: Sequence[str]) -> None:
        self._sync._check_boundary_desync(decode_uuids)

    @property
    def _sync(self) -> Any:
        return SyncCoordinator.for_worker(self._worker())
