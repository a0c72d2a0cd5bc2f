"""Paged attention by FlashInfer, on CUDA devices of which its kernels know."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from batchgen.attention.flashinfer.arrays import PagedArrays, paged_arrays
from batchgen.attention.flashinfer.kernels import DecodeSlot, Geometry, Kernels
from batchgen.attention.flashinfer.plans import PagedPlan, Planned, StaticSource, capturing
from batchgen.attention.protocol import DecodePlan, IndexInputs, as_int_list
from batchgen.attention.torch_paged import TorchPagedAttention

__all__ = ["FlashInferPagedAttention"]


class FlashInferPagedAttention:
    """Decode from the pages, prefill from packed keys, both by ``kernels``.

    ``exact``: rows are not split and prefill takes one sequence at a time, so that a row does not depend on what else
    is in the batch. A prefilled row still differs from the same row decoded, in the last bits.

    The torch reference does what FlashInfer has no kernel for: index-selected attention (``topk``, ``allowed``,
    both ``select_``), ``row_exact``, and index keys, which have no values.

    A decode forward is planned once, at its first layer. As FlashInfer cannot plan inside a capture, a step that is
    captured is planned by ``plan_ahead``, before the capture and before each replay.
    """

    name = "flashinfer_paged"

    def __init__(self, kernels: Kernels, *, exact: bool = False) -> None:
        self._kernels, self._exact = kernels, exact
        self._reference = TorchPagedAttention()
        self._decoders: dict[tuple[Geometry, int], Planned] = {}
        self._prefills: dict[Geometry, Planned] = {}
        # By the tensor of lengths, for as long as that one lives: as long as the captured step.
        self._static = WeakIdKeyDictionary()

    def plan_ahead(self, page_table: Tensor, kv_len: Tensor, page_size: int, scratch_page_id: int) -> None:
        """Plan for what these tensors of a captured step hold now; `plan_decode` of the same two then uses it."""
        host = paged_arrays(page_table, kv_len, page_size, scratch_page_id)
        source = self._static.get(kv_len)
        if source is None or source.page_table is not page_table:
            source = StaticSource(self._kernels, page_table, page_size, exact=self._exact)
            self._static[kv_len] = source
        source.refresh(host, scratch_page_id)

    def plan_decode(
        self,
        page_table: Tensor,
        kv_len: Tensor,
        page_size: int,
        scratch_page_id: int,
        max_seqlen: int | None = None,
    ) -> DecodePlan:
        """As the reference plans, without a number by position until one is read.

        RuntimeError inside a capture that nobody planned ahead for, beside what `paged_arrays` raises.
        """
        source = self._static.get(kv_len)
        if source is None or source.page_table is not page_table:
            if capturing(page_table.device):
                raise RuntimeError("FlashInfer cannot plan inside a capture, and nobody planned ahead for it")
            host = paged_arrays(page_table, kv_len, page_size, scratch_page_id, max_seqlen)
            source = _Forward(host, page_size, self)
            # Both may be updated in place before somebody reads.
            page_table, kv_len = page_table.clone(), kv_len.clone()

        def reading() -> DecodePlan:
            return self._reference.plan_decode(page_table, kv_len, page_size, scratch_page_id, max_seqlen)

        return PagedPlan(source, reading)

    def decode_slot(
        self, host: PagedArrays, device: PagedArrays, page_size: int, geometry: Geometry
    ) -> DecodeSlot:
        """The slot of this geometry, planned for these arrays; another forward's plan is given up."""
        key = geometry, page_size
        if key not in self._decoders:
            slot = self._kernels.decode_slot(geometry, page_size, exact=self._exact, fixed=None)
            self._decoders[key] = Planned(slot, self._kernels.device)
        planned = self._decoders[key]
        if planned.owner is not host:
            planned.plan(host, host, device)
        found: DecodeSlot = planned.slot
        return found

    def append(
        self, k: Tensor, v: Tensor | None, k_pool: Tensor, v_pool: Tensor | None, plan: DecodePlan
    ) -> None:
        """Write row i of ``k`` / ``v`` [B, heads, dim] at the position that the plan counts as its last."""
        if v is None or v_pool is None or not isinstance(plan, PagedPlan):
            self._reference.append(k, v, k_pool, v_pool, plan)
        else:
            k, v = k.to(k_pool.dtype), v.to(v_pool.dtype)
            self._kernels.append(k, v, k_pool, v_pool, plan.source.device)

    def decode(
        self,
        q: Tensor,
        k_pool: Tensor,
        v_pool: Tensor,
        plan: DecodePlan,
        *,
        scale: float,
        row_exact: bool,
        topk: Tensor | None = None,
    ) -> Tensor:
        if row_exact or topk is not None or not isinstance(plan, PagedPlan):
            return self._reference.decode(
                q, k_pool, v_pool, plan, scale=scale, row_exact=row_exact, topk=topk
            )
        if q.shape[0] == 0:
            return torch.empty_like(q)
        return plan.source.slot(Geometry.of(q, k_pool, scale)).run(q, k_pool, v_pool)

    def prefill(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens: Tensor | Sequence[int],
        *,
        scale: float,
        row_exact: bool,
        allowed: Tensor | None = None,
        cu_keys: Tensor | Sequence[int] | None = None,
    ) -> Tensor:
        if row_exact or allowed is not None:
            return self._reference.prefill(
                q, k, v, cu_seqlens, scale=scale, row_exact=row_exact, allowed=allowed, cu_keys=cu_keys
            )
        bounds = as_int_list(cu_seqlens)
        key_bounds = bounds if cu_keys is None else as_int_list(cu_keys)
        if not self._exact:
            return self._attend(q, k, v, bounds, key_bounds, scale)
        out = torch.empty_like(q)
        for (start, stop), (first, last) in zip(pairwise(bounds), pairwise(key_bounds), strict=True):
            ends = [0, stop - start], [0, last - first]
            out[start:stop] = self._attend(q[start:stop], k[first:last], v[first:last], *ends, scale)
        return out

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, bounds: list[int], key_bounds: list[int], scale: float
    ) -> Tensor:
        """Planned anew where the lengths are not those of the call before: once for all layers of a forward."""
        if q.shape[0] == 0:
            return torch.empty_like(q)
        geometry, lengths = Geometry.of(q, k, scale), (bounds, key_bounds)
        if geometry not in self._prefills:
            slot = self._kernels.prefill_slot(geometry, exact=self._exact)
            self._prefills[geometry] = Planned(slot, self._kernels.device)
        planned = self._prefills[geometry]
        if planned.owner != lengths:
            planned.plan(lengths, *(torch.tensor(ends, dtype=torch.int32) for ends in lengths))
        out: Tensor = planned.slot.run(q, k, v)
        return out

    def select_decode(
        self, index: IndexInputs, k_pool: Tensor, plan: DecodePlan, *, row_exact: bool
    ) -> Tensor:
        return self._reference.select_decode(index, k_pool, plan, row_exact=row_exact)

    def select_prefill(
        self,
        index: IndexInputs,
        cu_seqlens: Tensor | Sequence[int],
        *,
        row_exact: bool,
        cu_keys: Tensor | Sequence[int] | None = None,
    ) -> Tensor:
        return self._reference.select_prefill(index, cu_seqlens, row_exact=row_exact, cu_keys=cu_keys)


class _Forward:
    """The source of one forward's plan."""

    def __init__(self, host: PagedArrays, page_size: int, backend: FlashInferPagedAttention) -> None:
        self._host, self._page_size, self._backend = host, page_size, backend
        self.device = host.to(host.indices.device)

    def slot(self, geometry: Geometry) -> DecodeSlot:
        return self._backend.decode_slot(self._host, self.device, self._page_size, geometry)
