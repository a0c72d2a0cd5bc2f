"""The long-lived parts that the worker drives: model, attention backend, host pools, bound GPU pools, state slots."""

from __future__ import annotations

import torch

from batchgen.attention import AttentionBackend, AttnWrapperBase, TorchPagedAttention
from batchgen.kv import (
    DualHostKVCoordinator,
    GPUPagedKVCacheManager,
    HostPagedKVWorkerView,
    KVPoolConfig,
    StateSlotPool,
    open_host_pool,
)
from batchgen.models import LoadedModel, PagedCausalLM
from batchgen.parallel import DataParallelManager


class CoreEngine:
    """One per rank.

    The worker binds the GPU pools here (``gpu_paged_kv_manager`` and, for models with an index pool,
    ``gpu_paged_kv_manager_aux``); both are None until decoding is configured for the first time.
    """

    def __init__(
        self, loaded: LoadedModel, *, rank: int, world_size: int, device: torch.device, num_state_slots: int
    ) -> None:
        self.model_config = loaded.config
        self.device = device
        self.rank = rank
        self.world_size = world_size
        self.attention_backend: AttentionBackend = TorchPagedAttention()
        shape = loaded.model.state_shape()
        self.state_slot_pool = StateSlotPool(num_state_slots, shape or (), device=device)
        self._has_states = shape is not None
        if self._has_states:
            loaded.model.bind_states(self.state_slot_pool)
        self.gpu_paged_kv_manager: GPUPagedKVCacheManager | None = None
        self.gpu_paged_kv_manager_aux: GPUPagedKVCacheManager | None = None
        self.host_paged_kv_worker_view: HostPagedKVWorkerView | DualHostKVCoordinator | None = None
        self.host_paged_kv_worker_view_aux: HostPagedKVWorkerView | None = None

    def open_host_kv(
        self,
        primary: KVPoolConfig,
        auxiliary: KVPoolConfig | None,
        *,
        node_id: int,
        local_rank: int,
        local_world: int,
        session: str,
    ) -> None:
        """Open this node's host pool (and the index-key pool beside it) and publish the worker views.

        From then on a recurrent state outlives its slot for as long as the sequence has its KV on the host: a sequence
        on hold goes on from it.
        """
        view = open_host_pool(
            primary, node_id=node_id, local_rank=local_rank, local_world=local_world, session=session
        )
        if self._has_states:
            self.state_slot_pool.keeps = view.has_sequence
            view.on_release = self.state_slot_pool.forget
        if auxiliary is None:
            self.host_paged_kv_worker_view = view
            return
        aux = open_host_pool(
            auxiliary, node_id=node_id, local_rank=local_rank, local_world=local_world, session=session
        )
        self.host_paged_kv_worker_view = DualHostKVCoordinator(view, aux)
        self.host_paged_kv_worker_view_aux = aux

    def use_attention(self, backend: AttentionBackend) -> None:
        """From the next phase on; to be called before the first."""
        self.attention_backend = AttnWrapperBase.attention_backend = backend

    def configure_prefill(self, model: PagedCausalLM) -> PagedCausalLM:
        """The model as prefill runs it. The blocked weights of decode serve many rows as well, so they stay."""
        model.pack_for_decode()
        return model

    def configure_decoding(
        self, model: PagedCausalLM, *, max_rows_per_rank: int
    ) -> tuple[PagedCausalLM, DataParallelManager]:
        """The model as decode runs it, and the parallel manager of this decode phase."""
        model.pack_for_decode()
        return model, DataParallelManager(self.rank, self.world_size, max_rows_per_rank)

    def close(self) -> None:
        """Release the host pools (and their shared segments). Safe to call twice."""
        view = self.host_paged_kv_worker_view
        self.host_paged_kv_worker_view = None
        self.host_paged_kv_worker_view_aux = None
        if isinstance(view, DualHostKVCoordinator):
            view.auxiliary.close()
            view.primary.close()
        elif view is not None:
            view.close()
