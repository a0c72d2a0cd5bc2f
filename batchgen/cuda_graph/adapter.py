"""What the decode step and a graph adapter know of each other, and nothing more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from torch import Tensor

from batchgen.cuda_graph.buffers import StaticBuffers
from batchgen.cuda_graph.flags import DecodeGraphFlags

__all__ = [
    "BatchState",
    "CudaGraphAdapter",
    "GraphCaptureError",
    "GraphEligibility",
    "GraphMode",
    "GraphSegment",
    "KVAppendCallback",
    "KVAppendCallbackAux",
]

KVAppendCallback = Callable[[int, Tensor, Tensor], None]
KVAppendCallbackAux = Callable[[int, Tensor], None]


class GraphCaptureError(RuntimeError):
    """A bucket cannot be captured here; its steps run eagerly."""


class GraphMode(IntEnum):
    """How much of a decode step one graph covers."""

    EAGER = 0
    SEGMENTED = 1
    LAYER = 2
    WHOLE_MODEL = 3


@dataclass
class BatchState:
    """One decode step as the worker sees it.

    local_bsz rows on this rank, max_rank_bsz on the widest rank (it decides the bucket for all ranks).
    cache_seqlens [local_bsz] counts the token that this step writes; position_ids [local_bsz] = that - 1;
    input_ids int64 [local_bsz]; max_seqlen >= every cache_seqlens. cur_batch_sequence_ids: global ids in row
    order, which must be the row order of gpu_kv_manager's page table. state_slots int64 [local_bsz] or None.
    """

    local_bsz: int
    max_rank_bsz: int
    rank_token_counts: Sequence[int] | None
    cache_seqlens: Tensor | None
    position_ids: Tensor | None
    max_seqlen: int
    cur_batch_sequence_ids: Sequence[int]
    gpu_kv_manager: Any
    decode_iter: int
    input_ids: Tensor | None
    state_slots: Tensor | None = None


@dataclass(frozen=True)
class GraphEligibility:
    """Whether this step may replay, and which bucket. reason: "ok", or one of "adapter_not_built",
    "empty_global_batch", "over_bucket", "failed_bucket", "max_seqlen_exceeds_capture", "bucket_not_captured",
    "page_table_storage_changed"."""

    use_graph: bool
    bucket: int | None
    reason: str


@dataclass(frozen=True)
class GraphSegment:
    """A part of the step: reads and writes static buffers only, returns nothing. ``prepare`` is called before each
    run, outside of the capture, once the inputs are there."""

    name: str
    run: Callable[[], None]
    prepare: Callable[[], None] = lambda: None


class CudaGraphAdapter(ABC):
    """Makes one model's decode step replayable on static buffers.

    `StaticGraphManager` captures and replays; the adapter knows the model. It learns from `note_captured` and
    `note_failed` what the manager has, so that `eligibility` can answer without it.
    """

    name: str

    def __init__(self, buckets: Sequence[int], flags: DecodeGraphFlags | None = None) -> None:
        """ValueError when `buckets` is empty or names a size below 1."""
        if not buckets or min(buckets) < 1:
            raise ValueError(f"an adapter needs buckets of at least 1 row, got {list(buckets)}")
        self._buckets = tuple(sorted(set(buckets)))
        self._flags = DecodeGraphFlags.from_env() if flags is None else flags
        self._captured: dict[int, Hashable] = {}
        self._failed_buckets: set[int] = set()

    @abstractmethod
    def is_supported(self) -> bool:
        """Whether this model can be captured on its device at all."""

    @abstractmethod
    def select_buckets(self) -> tuple[int, ...]:
        """Bucket sizes worth capturing, ascending: those that have not failed."""

    @abstractmethod
    def advertised_modes(self) -> tuple[GraphMode, ...]:
        """The modes that `build_segments` can produce."""

    @abstractmethod
    def build_segments(self, buffers: StaticBuffers, gpu_kv_manager: Any) -> tuple[GraphSegment, ...]:
        """The step as segments over `buffers`, in order."""

    @abstractmethod
    def capture_signature(self, bucket: int, gpu_kv_manager: Any) -> Hashable:
        """Everything a captured bucket is tied to; a replay is valid only while this stays the same."""

    @abstractmethod
    def capture_inputs_for(self, bucket: int, gpu_kv_manager: Any) -> StaticBuffers:
        """New static buffers of this bucket, all rows padding. GraphCaptureError when they cannot be made."""

    @abstractmethod
    def eligibility(self, batch_state: BatchState) -> GraphEligibility:
        """Whether this step can replay a captured bucket; changes nothing."""

    @abstractmethod
    def prepare_replay_inputs(self, batch_state: BatchState, bucket: int) -> dict[str, Tensor]:
        """This step's live rows, by static buffer name. RuntimeError when the batch state is incomplete."""

    @abstractmethod
    def stage_post_graph_kv(
        self,
        batch_state: BatchState,
        outputs: Mapping[str, Tensor],
        kv_append_callback: KVAppendCallback | None,
        kv_append_callback_aux: KVAppendCallbackAux | None,
    ) -> None:
        """Hand the step's KV to the callbacks, layer by layer, from one clone per pool: the static buffers
        are overwritten by the next replay."""

    @abstractmethod
    def run_eager_reference(self, batch_state: BatchState, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The outputs of a replay, live rows only, computed eagerly from the same inputs. No callback is
        called and the KV pools hold afterwards what they held before."""

    def debug_options(self) -> DecodeGraphFlags:
        """Never changes a token."""
        return self._flags

    def bucket_for(self, rows: int) -> int | None:
        """The smallest bucket with at least `rows` rows; None when there is none."""
        at = bisect_left(self._buckets, rows)
        return self._buckets[at] if at < len(self._buckets) else None

    def note_captured(self, bucket: int, signature: Hashable) -> None:
        self._captured[bucket] = signature
        self._failed_buckets.discard(bucket)

    def note_failed(self, bucket: int) -> None:
        self._captured.pop(bucket, None)
        self._failed_buckets.add(bucket)

    def release_context(self) -> None:
        """Drop what is tied to model and pools; remember which buckets cannot be captured."""
        self._captured.clear()

    def release_all(self) -> None:
        """Drop everything."""
        self.release_context()
        self._failed_buckets.clear()
