"""One decode step, as values: what is to be launched, what it is launched on, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from batchgen.cuda_graph import BatchState, GraphEligibility
from batchgen.cuda_graph.adapter import KVAppendCallback, KVAppendCallbackAux
from batchgen.sequence import SequenceEntry

#: Replay or eager run, of which bucket, and why: what the graph adapter says of a batch state.
GraphDecision = GraphEligibility
#: Where there is no graph adapter.
GRAPHS_DISABLED = GraphDecision(False, None, "disabled")


@dataclass(frozen=True)
class DecodeStepRequest:
    """The step that the worker wants: one row of each tensor for each sequence, in the order of the page table.

    cache_seqlens int32 [B] counts the token that this step writes, position_ids int64 [B] is that - 1.
    """

    active_uuids: tuple[str, ...]
    cache_seqlens: torch.Tensor
    position_ids: torch.Tensor
    cuda_graph_decision: GraphDecision


@dataclass(frozen=True)
class DecodeBatch:
    """What a step runs on beside its request: the input tokens (in `state`), where the next tokens land on the host
    (`readback`, int64 [B]), and who takes the K/V that a replay leaves, layer by layer."""

    state: BatchState
    sequences: tuple[SequenceEntry, ...]
    readback: torch.Tensor
    append_kv: KVAppendCallback | None
    append_index_keys: KVAppendCallbackAux | None

    def is_for(self, req: DecodeStepRequest) -> bool:
        """Whether the request speaks of these sequences and these very tensors."""
        uuids = tuple(sequence.uuid for sequence in self.sequences)
        tensors = (
            self.state.cache_seqlens is req.cache_seqlens and self.state.position_ids is req.position_ids
        )
        return uuids == req.active_uuids and tensors


@dataclass(frozen=True)
class DeferredKv:
    """Takes the K/V of a step, [B, heads, dim] a layer, for one host append after the forward."""

    entries: list[tuple[int, torch.Tensor, torch.Tensor | None]]

    def __call__(self, layer_idx: int, k: torch.Tensor, v: torch.Tensor) -> None:
        self.entries.append((layer_idx, k, v))


@dataclass(frozen=True)
class DeferredIndexKeys:
    """Takes the index keys of a step, [B, dim] a layer, likewise; the pool has them as one head."""

    entries: list[tuple[int, torch.Tensor, torch.Tensor | None]]

    def __call__(self, layer_idx: int, k: torch.Tensor) -> None:
        self.entries.append((layer_idx, k.unsqueeze(1), None))


@dataclass(frozen=True)
class DecodeOutputs:
    """logits float32 [B, 1, vocab] of a forward."""

    logits: torch.Tensor


@dataclass(frozen=True)
class DecodeStepResult:
    """next_tokens int64 [B] on the device. `readback` is to hold the same on the host; on a GPU the copy may still be
    under way."""

    next_tokens: torch.Tensor
    readback: torch.Tensor
    decision: GraphDecision
