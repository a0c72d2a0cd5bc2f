"""Whole-model graphs for models whose decode step is one forward over `AttnWrapperBase`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from batchgen.attention import AttnWrapperBase, PlansAhead
from batchgen.config import ModelConfig
from batchgen.cuda_graph.adapter import (
    BatchState,
    CudaGraphAdapter,
    GraphCaptureError,
    GraphEligibility,
    GraphMode,
    GraphSegment,
    KVAppendCallback,
    KVAppendCallbackAux,
)
from batchgen.cuda_graph.buffers import StaticBuffers, TensorIdentity
from batchgen.cuda_graph.compare import PROBE_PREFIX
from batchgen.cuda_graph.context import CaptureContext
from batchgen.cuda_graph.flags import ALL_LAYERS, DecodeGraphFlags

if TYPE_CHECKING:
    from batchgen.models.states import RecurrentStates

__all__ = ["Glm5CudaGraphAdapter", "allocate_kv_staging"]

logger = logging.getLogger(__name__)

# Row-wise inputs and what their padded rows hold: no token, no KV, no page.
_PADDING = {"input_ids": 0, "position_ids": 0, "cache_seqlens": 0, "state_slots": -1, "page_table": -1}


def allocate_kv_staging(pool: Any, bucket: int) -> Tensor:
    """[layers, bucket, heads, dim] in the dtype and on the device of `pool`: one step's new keys or
    values."""
    c = pool.config
    with torch.inference_mode(False):
        return torch.zeros(
            c.num_layers, bucket, c.num_kv_heads, c.head_dim, dtype=c.dtype, device=pool.device
        )


class Glm5CudaGraphAdapter(CudaGraphAdapter):
    """Decode of a `PagedCausalLM` (forward, compute_logits, layers) as one segment.

    The captured forward reads the pool's graph page table, appends K/V of its rows to the pools itself
    (padded rows write the scratch page only) and leaves logits and the K/V of every layer in static outputs.
    """

    name = "glm5"

    def __init__(
        self,
        *,
        model: Any,
        config: ModelConfig,
        device: torch.device,
        buckets: Sequence[int],
        max_seqlen: int,
        world_size: int,
        flags: DecodeGraphFlags | None = None,
    ) -> None:
        """ValueError for a probe layer that the model does not have, or a max_seqlen below 1."""
        super().__init__(buckets, flags)
        if max_seqlen < 1:
            raise ValueError(f"max_seqlen must be at least 1 token, got {max_seqlen}")
        self.model = model
        self.config = config
        self.device = torch.device(device)
        self.world_size = world_size
        self.max_seqlen = min(max_seqlen, self._flags.max_seqlen or max_seqlen)
        # With `compare`: recurrent states as the step in hand found them.
        self._states_before: Tensor | None = None
        layers = config.num_hidden_layers
        probes = self._flags.probe_layers
        self.probe_layers = tuple(range(layers)) if probes == ALL_LAYERS else probes
        if any(layer >= layers for layer in self.probe_layers):
            raise ValueError(f"cannot probe layers {self.probe_layers}: {config.name} has {layers}")

    def is_supported(self) -> bool:
        """CPU, and GPU unless attention runs row by row: that reads lengths back, which a capture forbids."""
        return self.device.type == "cpu" or (self.device.type == "cuda" and not AttnWrapperBase.row_exact)

    def select_buckets(self) -> tuple[int, ...]:
        return tuple(bucket for bucket in self._buckets if bucket not in self._failed_buckets)

    def advertised_modes(self) -> tuple[GraphMode, ...]:
        return (GraphMode.WHOLE_MODEL,)

    def capture_signature(self, bucket: int, gpu_kv_manager: Any) -> Hashable:
        """(name, bucket, max_seqlen, world_size, heads, of each pool the storage of graph page table and cache,
        and that of recurrent states); the storage is None for a pool that is not initialised."""
        primary, aux = _pools(gpu_kv_manager)
        heads = (self.config.num_attention_heads, self.config.num_key_value_heads)
        return (
            self.name,
            bucket,
            self.max_seqlen,
            self.world_size,
            heads,
            _storage(primary),
            None if aux is None else _storage(aux),
            None if self._recurrence is None else self._recurrence.storage_identity,
        )

    def capture_inputs_for(self, bucket: int, gpu_kv_manager: Any) -> StaticBuffers:
        """GraphCaptureError when the pool's graph page table cannot hold `bucket` rows of `max_seqlen`
        tokens."""
        primary, aux = _pools(gpu_kv_manager)
        table = gpu_kv_manager.ensure_cuda_graph_page_table()
        capacity = table.shape[1] * primary.config.page_size
        if table.shape[0] < bucket or capacity < self.max_seqlen:
            raise GraphCaptureError(
                f"the graph page table of {table.shape[0]} rows x {capacity} tokens cannot hold bucket "
                f"{bucket} of {self.max_seqlen} tokens; raise graph_max_slots or graph_max_pages of the pool"
            )
        # Tensors made in inference mode could not be updated in place outside of it.
        with torch.inference_mode(False):

            def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
                return torch.zeros(*shape, dtype=dtype, device=self.device)

            inputs = {
                "input_ids": zeros(bucket, dtype=torch.int64),
                "position_ids": zeros(bucket, dtype=torch.int64),
                "cache_seqlens": zeros(bucket, dtype=torch.int32),
                "state_slots": zeros(bucket, dtype=torch.int64),
                "rank_token_counts": zeros(self.world_size, dtype=torch.int64),
                "num_valid_tokens": zeros(1, dtype=torch.int32),
            }
            outputs = {
                "logits": zeros(bucket, self.config.vocab_size, dtype=torch.float32),
                "kv_k": allocate_kv_staging(primary, bucket),
                "kv_v": allocate_kv_staging(primary, bucket),
            }
            if aux is not None:
                outputs["kv_aux"] = allocate_kv_staging(aux, bucket).flatten(2)
            for layer in self.probe_layers:
                hidden = zeros(bucket, self.config.hidden_size, dtype=torch.float32)
                outputs[f"{PROBE_PREFIX}{layer}"] = hidden
        return StaticBuffers(bucket, inputs, _PADDING, {"page_table": table[:bucket]}, outputs)

    def build_segments(self, buffers: StaticBuffers, gpu_kv_manager: Any) -> tuple[GraphSegment, ...]:
        """RuntimeError after `release_context`."""
        self._require_model()
        inputs, outputs = dict(buffers.inputs), dict(buffers.outputs)
        bound = self._bindings(inputs, gpu_kv_manager, self.max_seqlen, outputs)
        # Kernels are part of a graph: those bound now, whatever is bound at the replay.
        bound["attention_backend"] = backend = AttnWrapperBase.attention_backend
        bound["row_exact"] = AttnWrapperBase.row_exact
        bound["decode_page_table"] = table = buffers.in_place["page_table"]
        primary, _ = _pools(gpu_kv_manager)

        def prepare() -> None:
            if isinstance(backend, PlansAhead):
                backend.plan_ahead(
                    table, inputs["cache_seqlens"], primary.config.page_size, primary.scratch_page_id
                )

        def run() -> None:
            with CaptureContext(**bound), self._probing(outputs):
                hidden = self.model(inputs["input_ids"], inputs["position_ids"])
                outputs["logits"].copy_(self.model.compute_logits(hidden))

        return (GraphSegment("whole_model", run, prepare),)

    def eligibility(self, batch_state: BatchState) -> GraphEligibility:
        decision = self._decide(batch_state)
        if self._flags.path_log:
            path = f"bucket {decision.bucket}" if decision.use_graph else "eager"
            logger.info("decode step %d: %s (%s)", batch_state.decode_iter, path, decision.reason)
        return decision

    def _decide(self, state: BatchState) -> GraphEligibility:
        def eager(reason: str) -> GraphEligibility:
            return GraphEligibility(False, None, reason)

        if self.model is None:
            return eager("adapter_not_built")
        if state.max_rank_bsz <= 0:
            return eager("empty_global_batch")
        bucket = self.bucket_for(max(state.max_rank_bsz, state.local_bsz))
        if bucket is None:
            return eager("over_bucket")
        if bucket in self._failed_buckets:
            return eager("failed_bucket")
        if state.max_seqlen > self.max_seqlen:
            return eager("max_seqlen_exceeds_capture")
        if bucket not in self._captured:
            return eager("bucket_not_captured")
        manager = state.gpu_kv_manager
        if manager is None or self.capture_signature(bucket, manager) != self._captured[bucket]:
            return eager("page_table_storage_changed")
        # Pages reserved ahead count too: the whole row has to fit the graph page table.
        if manager.page_table_for_rows(state.local_bsz).shape[1] > manager.config.graph_max_pages:
            return eager("max_seqlen_exceeds_capture")
        return GraphEligibility(True, bucket, "ok")

    def prepare_replay_inputs(self, batch_state: BatchState, bucket: int) -> dict[str, Tensor]:
        """The live rows of every static input; fills the pools' graph page tables from their live ones.

        RuntimeError when a needed part of the batch state is None, or when the page table's rows are not this
        batch's. An empty local batch gives empty inputs: the other ranks replay, so this one does.
        """
        state, rows = batch_state, batch_state.local_bsz
        if rows > bucket:
            raise RuntimeError(f"{rows} rows do not fit bucket {bucket}")
        counts = _required(state.rank_token_counts, "rank_token_counts")
        slots = list(state.gpu_kv_manager.slot_to_seq_id)
        if slots != list(state.cur_batch_sequence_ids):
            raise RuntimeError(
                f"page table rows are sequences {slots}, the batch is {list(state.cur_batch_sequence_ids)}; "
                "rebuild the page table for this batch before replaying"
            )
        state_slots = state.state_slots
        if state_slots is None:
            state_slots = torch.full((rows,), -1, dtype=torch.int64, device=self.device)
        self._states_before = None
        if self._flags.compare and self._recurrence is not None:
            self._states_before = self._recurrence.copy_of(state_slots)
        table = state.gpu_kv_manager.get_cuda_graph_page_table()
        return {
            "input_ids": self._rows(state.input_ids, "input_ids", rows, torch.int64),
            "position_ids": self._rows(state.position_ids, "position_ids", rows, torch.int64),
            "cache_seqlens": self._rows(state.cache_seqlens, "cache_seqlens", rows, torch.int32),
            "state_slots": self._rows(state_slots, "state_slots", rows, torch.int64),
            "rank_token_counts": torch.tensor(list(counts), dtype=torch.int64),
            "num_valid_tokens": torch.tensor([rows], dtype=torch.int32),
            "page_table": table[:bucket],
        }

    def _rows(self, tensor: Tensor | None, name: str, rows: int, dtype: torch.dtype) -> Tensor:
        flat = _required(tensor, name).reshape(-1)
        if flat.shape[0] < rows:
            raise RuntimeError(f"batch state: {name} has {flat.shape[0]} rows, the batch has {rows}")
        return flat[:rows].to(device=self.device, dtype=dtype)

    def stage_post_graph_kv(
        self,
        batch_state: BatchState,
        outputs: Mapping[str, Tensor],
        kv_append_callback: KVAppendCallback | None,
        kv_append_callback_aux: KVAppendCallbackAux | None,
    ) -> None:
        rows = batch_state.local_bsz
        if rows <= 0:
            return
        if kv_append_callback is not None:
            k, v = (outputs[name][:, :rows].clone() for name in ("kv_k", "kv_v"))
            for layer in range(k.shape[0]):
                kv_append_callback(layer, k[layer], v[layer])
        if kv_append_callback_aux is not None and "kv_aux" in outputs:
            aux = outputs["kv_aux"][:, :rows].clone()
            for layer in range(aux.shape[0]):
                kv_append_callback_aux(layer, aux[layer])

    @torch.inference_mode()
    def run_eager_reference(self, batch_state: BatchState, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Reads the pools' live page tables, not the graph's, so that a stale graph table shows.

        A recurrent state that a replay has advanced is set back meanwhile, which needs the `compare` flag.
        """
        self._require_model()
        manager, rows = batch_state.gpu_kv_manager, batch_state.local_bsz
        primary, aux = _pools(manager)
        outputs = {
            "logits": torch.zeros(rows, self.config.vocab_size, device=self.device),
            "kv_k": allocate_kv_staging(primary, rows),
            "kv_v": allocate_kv_staging(primary, rows),
        }
        if aux is not None:
            outputs["kv_aux"] = allocate_kv_staging(aux, rows).flatten(2)
        for layer in self.probe_layers:
            hidden = torch.zeros(rows, self.config.hidden_size, device=self.device)
            outputs[f"{PROBE_PREFIX}{layer}"] = hidden
        if rows == 0:
            return outputs
        bound = self._bindings(inputs, manager, batch_state.max_seqlen, outputs)
        with (
            CaptureContext(decode_page_table=None, **bound),
            _kv_unchanged(primary, aux, inputs["cache_seqlens"]),
            self._states_set_back(inputs["state_slots"]),
            self._probing(outputs),
        ):
            hidden = self.model(inputs["input_ids"], inputs["position_ids"])
            outputs["logits"].copy_(self.model.compute_logits(hidden))
        return outputs

    def _states_set_back(self, slots: Tensor) -> AbstractContextManager[None]:
        if self._recurrence is None:
            return nullcontext()
        before = self._states_before
        return self._recurrence.set_back(slots, self._recurrence.copy_of(slots) if before is None else before)

    @property
    def _recurrence(self) -> RecurrentStates | None:
        return getattr(self.model, "recurrence", None)

    def release_context(self) -> None:
        super().release_context()
        self.model = None
        self._states_before = None

    def _require_model(self) -> None:
        if self.model is None:
            raise RuntimeError("this adapter was released; build a new one for the model")

    def _bindings(
        self, inputs: Mapping[str, Tensor], manager: Any, max_seqlen: int, outputs: dict[str, Tensor]
    ) -> dict[str, Any]:
        """Class attributes of a decode forward that collects its K/V in `outputs`."""
        primary, aux = _pools(manager)

        def collect(layer: int, k: Tensor, v: Tensor) -> None:
            outputs["kv_k"][layer].copy_(k)
            outputs["kv_v"][layer].copy_(v)

        def collect_aux(layer: int, k: Tensor) -> None:
            outputs["kv_aux"][layer].copy_(k)

        return {
            "phase": "decode",
            "gpu_paged_kv_cache_manager": manager,
            "gpu_paged_kv_manager_primary": primary,
            "gpu_paged_kv_manager_aux": aux,
            "cache_seqlens": inputs["cache_seqlens"],
            "position_ids": inputs["position_ids"],
            "max_seqlen": max_seqlen,
            "primary_slot_indices": None,
            "aux_slot_indices": None,
            "state_slots": inputs["state_slots"],
            "kv_append_callback": collect,
            "kv_append_callback_aux": None if aux is None else collect_aux,
        }

    @contextmanager
    def _probing(self, outputs: dict[str, Tensor]) -> Iterator[None]:
        """Copy the hidden states after each probed layer; takes part in nothing else."""

        def hook_for(target: Tensor) -> Callable[[Any, Any, Tensor], None]:
            def hook(_module: Any, _args: Any, hidden: Tensor) -> None:
                target.copy_(hidden)

            return hook

        handles = [
            self.model.layers[layer].register_forward_hook(hook_for(outputs[f"{PROBE_PREFIX}{layer}"]))
            for layer in self.probe_layers
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _pools(gpu_kv_manager: Any) -> tuple[Any, Any]:
    """(primary, auxiliary or None); a single pool's auxiliary is the one bound to the attention wrapper."""
    primary = getattr(gpu_kv_manager, "primary", gpu_kv_manager)
    aux = getattr(gpu_kv_manager, "auxiliary", None)
    return primary, AttnWrapperBase.gpu_paged_kv_manager_aux if aux is None else aux


def _storage(pool: Any) -> tuple[Hashable, ...] | None:
    if not pool.is_initialized:
        return None
    caches = (pool.k_cache, pool.v_cache)
    return (
        *pool.get_cuda_graph_page_table_state()[:4],
        *(None if cache is None else TensorIdentity.of(cache) for cache in caches),
    )


def _required(value: Any, name: str) -> Any:
    if value is None:
        raise RuntimeError(f"batch state: {name} is None, a replay needs it")
    return value


@contextmanager
def _kv_unchanged(primary: Any, aux: Any, cache_seqlens: Tensor) -> Iterator[None]:
    """Put the token slots that a decode forward of these rows writes back as they were."""
    page_size = primary.config.page_size
    last = cache_seqlens.to(torch.int64) - 1
    table = primary.page_table_for_rows(last.shape[0]).to(torch.int64)
    pages, offsets = table.gather(1, (last // page_size)[:, None])[:, 0], last % page_size
    pools = [pool for pool in (primary, aux) if pool is not None]
    caches = [cache for pool in pools for cache in (pool.k_cache, pool.v_cache) if cache is not None]
    saved = [cache[:, pages, offsets].clone() for cache in caches]
    try:
        yield
    finally:
        for cache, content in zip(caches, saved, strict=True):
            cache[:, pages, offsets] = content
