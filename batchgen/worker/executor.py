"""Methods of BatchGenWorker: cut out of batchgen/batchgen_worker.py."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Dict, Optional, Protocol, Sequence

from batchgen.attention import AttnWrapperBase
from batchgen.cuda_graph import (
    BatchState,
    Glm5CudaGraphAdapter,
    StaticGraphManager,
    compare_outputs,
    generate_bucket_sizes,
)
from batchgen.worker.decode_types import GRAPHS_DISABLED, DecodeOutputs

if TYPE_CHECKING:
    from collections import Counter

    import torch

    from batchgen.batchgen_worker import BatchGenWorkerArgs
    from batchgen.cuda_graph import GraphEligibility
    from batchgen.sequence import SequenceEntry
    from batchgen.worker.decode_types import DecodeBatch, GraphDecision

logger = logging.getLogger("batchgen.worker")


class DecodeModel(Protocol):
    def __call__(
        self, input_ids: torch.Tensor | None, position_ids: torch.Tensor | None
    ) -> torch.Tensor: ...
    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor: ...


class GraphAdapter(Protocol):
    def eligibility(self, batch_state: BatchState) -> GraphEligibility: ...
    def run_eager_reference(
        self, batch_state: BatchState, inputs: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]: ...
    def release_context(self) -> None: ...


class GraphReplays(Protocol):
    @property
    def failed_buckets(self) -> set[int]: ...
    def is_captured(self, bucket: int) -> bool: ...
    def capture(self, adapter: Any, bucket: int, gpu_kv_manager: Any) -> bool: ...
    def release(self) -> None: ...


class ExecutedPool(Protocol):
    """The pool that attention reads, another object after it has grown."""

    @property
    def config(self) -> Any: ...


class StateSlots(Protocol):
    """Where the recurrent state of each sequence lies."""

    def slots_for(self, *args: Any, **kwargs: Any) -> Any: ...


class DecodeGraphs(Protocol):
    """The life of adapter and captures: made here, dropped before their pool goes, and how far they are checked."""

    _cuda_graph_adapter: Optional[Glm5CudaGraphAdapter]
    _cuda_graph_manager: Optional[StaticGraphManager]

    def _get_cuda_graph_gpu_manager(self) -> Optional[Any]: ...

    @property
    def _graph_flags(self) -> Any: ...


class DecodeStepState(Protocol):
    """Where decoding stands: steps so far, and the rows of all ranks.

    Created on first use, so hasattr() may be False: _cumulative_decode_steps,
    _current_decode_max_rank_batch_size, _current_decode_rank_token_counts.
    """

    @property
    def _cumulative_decode_steps(self) -> int: ...

    @property
    def _current_decode_max_rank_batch_size(self) -> Any: ...

    @property
    def _current_decode_rank_token_counts(self) -> Any: ...

    def disable_watchdog(self) -> Any: ...


class ExecutionRecord(Protocol):
    """How steps were run, and why some could not use the static buffers."""

    @property
    def counters(self) -> Counter: ...

    @property
    def graph_reasons(self) -> Counter: ...


class ExecutorConfig(Protocol):
    """Configuration, fixed while a batch runs."""

    @property
    def PAGE_SIZE(self) -> int: ...

    @property
    def args(self) -> BatchGenWorkerArgs: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def model_config(self) -> Any: ...

    @property
    def world_size(self) -> int: ...


class ModelExecutor:
    """Methods of BatchGenWorker, without state of its own.

    Attributes stay on the worker and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    def __init__(
        self,
        *,
        model: Callable[[], DecodeModel],
        adapter: Callable[[], GraphAdapter],
        replays: Callable[[], GraphReplays],
        gpu_pool: Callable[[], ExecutedPool],
        state_slots: Callable[[], StateSlots],
        graphs: DecodeGraphs,
        step: DecodeStepState,
        record: ExecutionRecord,
        config: ExecutorConfig,
    ) -> None:
        self._read_model = model
        self._read_adapter = adapter
        self._read_replays = replays
        self._read_gpu_pool = gpu_pool
        self._read_state_slots = state_slots
        self._graphs = graphs
        self._step = step
        self._record = record
        self._config = config

    @classmethod
    def for_worker(cls, worker: Any) -> ModelExecutor:
        """Handles on a worker: the worker itself, or what the recipe says is read from it."""
        return cls(
            model=lambda: worker.model,
            adapter=lambda: worker._cuda_graph_adapter,
            replays=lambda: worker._cuda_graph_manager,
            gpu_pool=lambda: worker.gpu_paged_kv_cache_manager,
            state_slots=lambda: worker.core_engine.state_slot_pool,
            graphs=worker,
            step=worker,
            record=worker,
            config=worker,
        )

    @property
    def _model(self) -> DecodeModel:
        """Read at each use, for another object may have taken its place."""
        return self._read_model()

    @property
    def _adapter(self) -> GraphAdapter:
        """Read at each use, for another object may have taken its place."""
        return self._read_adapter()

    @property
    def _replays(self) -> GraphReplays:
        """Read at each use, for another object may have taken its place."""
        return self._read_replays()

    @property
    def _gpu_pool(self) -> ExecutedPool:
        """Read at each use, for another object may have taken its place."""
        return self._read_gpu_pool()

    @property
    def _state_slots(self) -> StateSlots:
        """Read at each use, for another object may have taken its place."""
        return self._read_state_slots()

    def _ensure_cuda_graph_adapter(self) -> None:
        """Adapter and static buffers of this decode phase; rebuilt when the model object or the pool changed."""
        if self._config.args.disable_cuda_graphs:
            return
        if self._adapter is None:
            largest = min(self._config.args.cuda_graph_max_bucket_size, self._config.args.max_batch_size)
            self._graphs._cuda_graph_adapter = Glm5CudaGraphAdapter(
                model=self._model,
                config=self._config.model_config,
                device=self._config.device,
                buckets=generate_bucket_sizes(largest, self._config.args.cuda_graph_num_buckets),
                max_seqlen=self._gpu_pool.config.graph_max_pages * self._config.PAGE_SIZE,
                world_size=self._config.world_size,
            )
        if self._replays is None:
            self._graphs._cuda_graph_manager = StaticGraphManager()

    def _capture_cuda_graph_for_batch(self) -> None:
        """Capture the bucket of the widest rank, once per pool; outside of the step, and not timed by the watchdog."""
        adapter = getattr(self._graphs, "_cuda_graph_adapter", None)
        manager = self._graphs._get_cuda_graph_gpu_manager()
        rows = getattr(self._step, "_current_decode_max_rank_batch_size", None) or 0
        if adapter is None or manager is None or rows == 0:
            return
        bucket = adapter.bucket_for(rows)
        if bucket is None or bucket in self._replays.failed_buckets:
            return
        if not self._replays.is_captured(bucket):
            with self._step.disable_watchdog():
                self._replays.capture(adapter, bucket, manager)
            self._record.counters["graph_captures"] += 1

    def _release_cuda_graphs(self) -> None:
        """Captured buckets name the storage of the pool that is about to go; drop them and the model reference."""
        if self._replays is not None:
            self._replays.release()
            self._graphs._cuda_graph_manager = None
        if self._adapter is not None:
            self._adapter.release_context()
            self._graphs._cuda_graph_adapter = None

    def _decode_make_batch_state(
        self, sequences: Sequence[SequenceEntry], new_tokens: torch.Tensor, max_seqlen: int
    ) -> BatchState:
        """What the graph adapter may know of this step: its only view of the worker."""
        global_ids = [seq.global_idx for seq in sequences]
        state_slots = self._state_slots.slots_for(global_ids).to(self._config.device)
        AttnWrapperBase.state_slots = state_slots
        return BatchState(
            local_bsz=len(sequences),
            max_rank_bsz=self._step._current_decode_max_rank_batch_size,
            rank_token_counts=tuple(self._step._current_decode_rank_token_counts),
            cache_seqlens=AttnWrapperBase.cache_seqlens,
            position_ids=AttnWrapperBase.position_ids,
            max_seqlen=max_seqlen,
            cur_batch_sequence_ids=global_ids,
            gpu_kv_manager=self._graphs._get_cuda_graph_gpu_manager(),
            decode_iter=self._step._cumulative_decode_steps,
            input_ids=new_tokens,
            state_slots=state_slots,
        )

    def _decode_graph_decision(self, batch_state: BatchState) -> GraphDecision:
        """Whether this step replays a captured bucket, and which; every reason is counted."""
        decision = GRAPHS_DISABLED
        if self._adapter is not None:
            decision = self._adapter.eligibility(batch_state)
        self._record.graph_reasons[decision.reason] += 1
        return decision

    def _decode_compare_graph(
        self, batch_state: BatchState, inputs: Dict[str, torch.Tensor], outputs: Dict[str, torch.Tensor]
    ) -> None:
        """Eager run on the replayed inputs beside the replay; says where they differ and changes nothing."""
        reference = self._adapter.run_eager_reference(batch_state, inputs)
        rows = batch_state.local_bsz
        report = compare_outputs(
            {"logits": outputs["logits"][:rows]},
            {"logits": reference["logits"][:rows]},
            atol=self._graphs._graph_flags.compare_atol,
            rtol=self._graphs._graph_flags.compare_rtol,
        )
        self._record.counters["graph_compares"] += 1
        if report.passed:
            return
        self._record.counters["graph_compare_failures"] += 1
        logger.error("graph replay and eager run differ at step %d: %s", batch_state.decode_iter, report)
        if self._graphs._graph_flags.compare_fail:
            raise RuntimeError(f"graph replay and eager run differ: {report}")

    def _decode_run_eager(self, batch: DecodeBatch) -> DecodeOutputs:
        """One forward outside of the static buffers. Runs for an empty batch, too: models with collectives inside need
		every rank."""
        hidden = self._model(batch.state.input_ids, batch.state.position_ids)
        self._record.counters["eager_steps"] += 1
        return DecodeOutputs(self._model.compute_logits(hidden).unsqueeze(1))
