"""What `DecodeScheduler` is given: the executor with what it is made of, and what ranks tell each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from batchgen.cuda_graph import BatchState, GraphEligibility
from batchgen.sequence import SequenceEntry
from batchgen.worker.decode_types import DecodeBatch, DecodeOutputs, GraphDecision


class DecodeModel(Protocol):
    """The model of the phase, another object in each: ask for it again."""

    def __call__(self, input_ids: torch.Tensor | None, position_ids: torch.Tensor | None) -> torch.Tensor: ...
    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor: ...


class GraphAdapter(Protocol):
    """eligibility -> prepare_replay_inputs -> stage_post_graph_kv, see `batchgen.cuda_graph.CudaGraphAdapter`."""

    def eligibility(self, batch_state: BatchState) -> GraphEligibility: ...
    def prepare_replay_inputs(self, batch_state: BatchState, bucket: int) -> dict[str, torch.Tensor]: ...
    def stage_post_graph_kv(
        self, batch_state: BatchState, outputs: Mapping[str, torch.Tensor], append: Any, append_aux: Any
    ) -> None: ...


class GraphReplays(Protocol):
    """The buckets that are captured for this pool."""

    def replay(self, bucket: int, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]: ...


class ParallelRows(Protocol):
    """Row counts of all ranks, as collectives and static buffers see them."""

    def set_num_tokens_per_rank(self, rows: int) -> None: ...
    def set_rank_token_counts(self, counts: Sequence[int]) -> None: ...


class HostKVRebalancer(Protocol):
    """Who holds sequences back, with their KV on the host."""

    def put_on_hold(self, uuids: Sequence[str]) -> None:
        """Collective: metadata, GPU pages, status, barrier."""


class ModelExecutorBackend(Protocol):
    """Runs the model. The members are looked up at each use: all but `parallel` change within a phase."""

    @property
    def model(self) -> DecodeModel:
        """AttributeError while it is being reconfigured."""

    @property
    def adapter(self) -> GraphAdapter | None:
        """None where steps run eagerly."""

    @property
    def replays(self) -> GraphReplays: ...
    @property
    def parallel(self) -> ParallelRows: ...
    @property
    def rebalancer(self) -> HostKVRebalancer: ...
    @property
    def batch(self) -> DecodeBatch | None:
        """What the coming step runs on, staged by whoever asks for it."""

    def forward_decode(self, batch: DecodeBatch) -> DecodeOutputs:
        """One forward outside of the static buffers."""

    def batch_state(
        self, sequences: Sequence[SequenceEntry], new_tokens: torch.Tensor, max_seqlen: int
    ) -> BatchState:
        """What the graph adapter may know of a step."""

    def decide(self, batch_state: BatchState) -> GraphDecision:
        """`adapter.eligibility`, counted by its reason."""

    def compare_replay(
        self, batch_state: BatchState, inputs: dict[str, torch.Tensor], outputs: dict[str, torch.Tensor]
    ) -> None:
        """An eager run on the inputs of a replay beside it. RuntimeError where they differ and the flags say so."""

    def capture_graph(self) -> None:
        """The bucket of the widest rank, unless it is captured."""


class SyncCoordinator(Protocol):
    """What ranks tell each other about sequences; all but `owned` and `absorb` are collective."""

    def completed(self, decode_uuids: Sequence[str]) -> tuple[set[str], list[str]]:
        """(those that are done on the rank that owns them, the others)."""

    def agreed(self, decode_uuids: Sequence[str]) -> list[str]:
        """The sequences that every rank wants to decode, in global order."""

    def publish(self, uuids: Sequence[str]) -> None:
        """Owners tell the fields that only they advance."""

    def owned(self, seq: SequenceEntry) -> dict[str, Any]:
        """These fields of one sequence."""

    def absorb(self, seq: SequenceEntry, metadata: dict[str, Any]) -> None:
        """Take over what its owner told."""

    def check_alike(self, decode_uuids: Sequence[str]) -> None:
        """RuntimeError where ranks decode different sequences."""
