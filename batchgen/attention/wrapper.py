"""The attention layer as the worker sees it: state bound on the class, read by every layer's ``forward``.

The worker binds the pools, the batch and the callbacks once per phase on ``AttnWrapperBase`` itself, not on
an instance.  That makes these attributes hidden inputs of the model and hidden outputs of the worker:
``MUTABLE_ATTRS`` names them all, ``snapshot`` reads them, ``reset`` puts the defaults back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from batchgen.attention.prefix import PrefillPrefix
from batchgen.attention.protocol import AttentionBackend, DecodePlan, IndexInputs
from batchgen.config import ModelConfig

__all__ = ["AttnWrapperBase", "Attn_Wrapper"]

KVCallback = Callable[[int, Tensor, Tensor], None]
IndexKeyCallback = Callable[[int, Tensor], None]


class AttnWrapperBase(nn.Module):
    """Paged attention of one layer; ``phase`` decides between packed prefill and paged decode."""

    phase: ClassVar[str] = "idle"
    attention_backend: ClassVar[AttentionBackend | None] = None
    row_exact: ClassVar[bool] = False
    gpu_paged_kv_cache_manager: ClassVar[Any] = None
    gpu_paged_kv_manager_primary: ClassVar[Any] = None
    gpu_paged_kv_manager_aux: ClassVar[Any] = None
    host_paged_kv_worker_view: ClassVar[Any] = None
    host_paged_kv_worker_view_aux: ClassVar[Any] = None
    cur_batch: ClassVar[Sequence[int] | None] = None
    cu_seqlens: ClassVar[Tensor | None] = None
    prefill_kv_callback: ClassVar[KVCallback | None] = None
    prefill_kv_callback_aux: ClassVar[IndexKeyCallback | None] = None
    prefill_prefix: ClassVar[PrefillPrefix | None] = None
    cache_seqlens: ClassVar[Tensor | None] = None
    position_ids: ClassVar[Tensor | None] = None
    max_seqlen: ClassVar[int | None] = None
    decode_page_table: ClassVar[Tensor | None] = None
    primary_slot_indices: ClassVar[Tensor | None] = None
    aux_slot_indices: ClassVar[Tensor | None] = None
    decode_plan: ClassVar[DecodePlan | None] = None
    decode_plan_aux: ClassVar[DecodePlan | None] = None
    kv_append_callback: ClassVar[KVCallback | None] = None
    kv_append_callback_aux: ClassVar[IndexKeyCallback | None] = None
    state_slots: ClassVar[Tensor | None] = None

    MUTABLE_ATTRS: ClassVar[tuple[str, ...]] = (
        "phase",
        "attention_backend",
        "row_exact",
        "gpu_paged_kv_cache_manager",
        "gpu_paged_kv_manager_primary",
        "gpu_paged_kv_manager_aux",
        "host_paged_kv_worker_view",
        "host_paged_kv_worker_view_aux",
        "cur_batch",
        "cu_seqlens",
        "prefill_kv_callback",
        "prefill_kv_callback_aux",
        "prefill_prefix",
        "cache_seqlens",
        "position_ids",
        "max_seqlen",
        "decode_page_table",
        "primary_slot_indices",
        "aux_slot_indices",
        "decode_plan",
        "decode_plan_aux",
        "kv_append_callback",
        "kv_append_callback_aux",
        "state_slots",
    )

    def __init__(self, layer_idx: int, config: ModelConfig) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.scale = config.head_dim**-0.5

    @classmethod
    def snapshot(cls) -> dict[str, Any]:
        """The bound state by name (the objects themselves, not copies)."""
        return {name: AttnWrapperBase.__dict__[name] for name in cls.MUTABLE_ATTRS}

    @classmethod
    def reset(cls) -> None:
        """Every attribute back to its default."""
        for name, value in _DEFAULTS.items():
            setattr(AttnWrapperBase, name, value)

    @classmethod
    def begin_decode_forward(cls) -> None:
        """Build the plan of this decode forward from the bound page table and lengths, once for all layers.

        A bound ``decode_page_table`` (static replay) serves both pools, whose pages are mirrored.
        Otherwise each pool is read through its own live table, at its own slot indices.  No rows: no plan.
        RuntimeError when nothing is bound.
        """
        base = AttnWrapperBase
        base.decode_plan = base.decode_plan_aux = None
        if base.cache_seqlens is not None and base.cache_seqlens.shape[0] == 0:
            return
        primary = _primary_manager()
        if base.attention_backend is None or base.cache_seqlens is None or primary is None:
            raise RuntimeError(
                "decode forward without bound attention state: set AttnWrapperBase.attention_backend, "
                "cache_seqlens and gpu_paged_kv_manager_primary (or gpu_paged_kv_cache_manager) first"
            )
        base.decode_plan = _plan(primary, base.primary_slot_indices)
        aux = base.gpu_paged_kv_manager_aux
        if aux is not None:
            replayed = base.decode_page_table is not None
            base.decode_plan_aux = base.decode_plan if replayed else _plan(aux, base.aux_slot_indices)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, index: IndexInputs | None = None) -> Tensor:
        """``q`` [T, Hq, D], ``k``/``v`` [T, Hkv, D] -> [T, Hq, D]; hands the new KV to the bound callbacks.

        A rank whose batch is empty (T = 0) still runs the forward; it touches no pool and calls nothing back.
        """
        if q.shape[0] == 0:
            return torch.empty_like(q)
        if AttnWrapperBase.phase == "prefill":
            return self._prefill(q, k, v, index)
        if AttnWrapperBase.phase == "decode":
            return self._decode(q, k, v, index)
        raise RuntimeError(
            f"attention forward in phase {AttnWrapperBase.phase!r}: bind 'prefill' or 'decode' first"
        )

    def _prefill(self, q: Tensor, k: Tensor, v: Tensor, index: IndexInputs | None) -> Tensor:
        base = AttnWrapperBase
        backend = base.attention_backend
        if backend is None or base.cu_seqlens is None:
            raise RuntimeError(
                "prefill forward without AttnWrapperBase.attention_backend and cu_seqlens bound"
            )
        if base.prefill_kv_callback is not None:
            base.prefill_kv_callback(self.layer_idx, k, v)
        prefix, cu_keys = base.prefill_prefix, None
        if prefix is not None:
            k_pool, v_pool = _primary_manager().get_kv_tensors(self.layer_idx)
            k, v, cu_keys = prefix.before(k, k_pool), prefix.before(v, v_pool), prefix.cu_keys
        allowed = None
        if index is not None:
            if base.prefill_kv_callback_aux is not None:
                base.prefill_kv_callback_aux(self.layer_idx, index.k[:, 0])
            if prefix is not None:
                index_pool, _ = base.gpu_paged_kv_manager_aux.get_kv_tensors(self.layer_idx)
                index = replace(index, k=prefix.before(index.k, index_pool))
            allowed = backend.select_prefill(
                index, base.cu_seqlens, row_exact=base.row_exact, cu_keys=cu_keys
            )
        return backend.prefill(
            q,
            k,
            v,
            base.cu_seqlens,
            scale=self.scale,
            row_exact=base.row_exact,
            allowed=allowed,
            cu_keys=cu_keys,
        )

    def _decode(self, q: Tensor, k: Tensor, v: Tensor, index: IndexInputs | None) -> Tensor:
        base = AttnWrapperBase
        backend, plan = base.attention_backend, base.decode_plan
        if backend is None or plan is None:
            raise RuntimeError("decode forward without a plan: call AttnWrapperBase.begin_decode_forward()")
        k_pool, v_pool = _primary_manager().get_kv_tensors(self.layer_idx)
        backend.append(k, v, k_pool, v_pool, plan)
        if base.kv_append_callback is not None:
            base.kv_append_callback(self.layer_idx, k, v)
        topk = None
        if index is not None:
            aux, plan_aux = base.gpu_paged_kv_manager_aux, base.decode_plan_aux
            if aux is None or plan_aux is None:
                raise RuntimeError(
                    "this model caches index keys: bind AttnWrapperBase.gpu_paged_kv_manager_aux first"
                )
            index_pool, _ = aux.get_kv_tensors(self.layer_idx)
            backend.append(index.k, None, index_pool, None, plan_aux)
            if base.kv_append_callback_aux is not None:
                base.kv_append_callback_aux(self.layer_idx, index.k[:, 0])
            topk = backend.select_decode(index, index_pool, plan_aux, row_exact=base.row_exact)
        return backend.decode(q, k_pool, v_pool, plan, scale=self.scale, row_exact=base.row_exact, topk=topk)


Attn_Wrapper = AttnWrapperBase
_DEFAULTS = AttnWrapperBase.snapshot()


def _primary_manager() -> Any:
    """The KV pool: the bound primary, else the bound manager (or the primary inside it, where it is dual)."""
    base = AttnWrapperBase
    if base.gpu_paged_kv_manager_primary is not None:
        return base.gpu_paged_kv_manager_primary
    return getattr(base.gpu_paged_kv_cache_manager, "primary", base.gpu_paged_kv_cache_manager)


def _plan(manager: Any, slots: Tensor | None) -> DecodePlan:
    base = AttnWrapperBase
    assert base.attention_backend is not None and base.cache_seqlens is not None
    if base.decode_page_table is not None:
        table = base.decode_page_table
    elif slots is None:
        table = manager.page_table_for_rows(base.cache_seqlens.shape[0])
    else:
        table = manager.gpu_table[:, :-1].index_select(0, slots.to(torch.int64))
    return base.attention_backend.plan_decode(
        table,
        base.cache_seqlens,
        manager.config.page_size,
        manager.scratch_page_id,
        base.max_seqlen,
    )
