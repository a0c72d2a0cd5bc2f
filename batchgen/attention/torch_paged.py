"""Reference paged attention in plain torch: CPU and GPU, dense and index-selected, batched and row by row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from batchgen.attention.checks import check_longest, no_page
from batchgen.attention.index import select_packed, select_rows
from batchgen.attention.protocol import DecodePlan, IndexInputs, as_int_list

__all__ = ["TorchPagedAttention"]


class TorchPagedAttention:
    """Gathers the live slots of each row into a dense block, then does batched matrix products on it.

    The gather takes (slot, head) rows, so that its result is already head-major: one batched product over
    rows x KV heads serves all query heads of a group without expanding K or V.  Gather blocks are reused from
    layer to layer (a fresh block of this size would be page-faulted in anew each time on CPU).
    """

    name = "torch_paged"

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def plan_decode(
        self,
        page_table: Tensor,
        kv_len: Tensor,
        page_size: int,
        scratch_page_id: int,
        max_seqlen: int | None = None,
    ) -> DecodePlan:
        """Build the plan for rows of ``page_table`` [B, P] (-1 padded) with ``kv_len`` [B].

        Lmax is the longest row; on a GPU it is ``max_seqlen`` where given, as a captured graph may not read a
        length back.  On CPU: ValueError when a row is longer than ``max_seqlen``, RuntimeError when a live
        position has no page.
        """
        lengths = kv_len.to(device=page_table.device, dtype=torch.int64)
        on_cpu = page_table.device.type == "cpu"
        if max_seqlen is not None and not on_cpu:
            width = max(max_seqlen, 1)
        else:
            width = max(int(lengths.max()), 1) if lengths.numel() else 1
        if on_cpu:
            check_longest(width, page_table, page_size, max_seqlen)
        live = lengths > 0
        last = (lengths - 1).clamp_min(0)
        positions = torch.minimum(torch.arange(width, device=page_table.device)[None, :], last[:, None])
        columns = positions // page_size
        if page_table.shape[1] == 0:
            page_table = page_table.new_full((page_table.shape[0], 1), -1)
        pages = page_table.to(torch.int64).gather(1, columns)
        pages = torch.where(live[:, None], pages, scratch_page_id)
        if on_cpu and bool((pages < 0).any()):
            row, column = (pages < 0).nonzero()[0].tolist()
            raise no_page(row, int(lengths[row]), column)
        token_indices = pages * page_size + positions % page_size
        full = on_cpu and bool((lengths.clamp_min(1) == width).all())
        mask = (
            None
            if full
            else torch.arange(width, device=page_table.device)[None, :] < lengths.clamp_min(1)[:, None]
        )
        write_indices = token_indices.gather(1, last[:, None])[:, 0]
        return DecodePlan(token_indices, lengths, mask, write_indices, width)

    def append(
        self, k: Tensor, v: Tensor | None, k_pool: Tensor, v_pool: Tensor | None, plan: DecodePlan
    ) -> None:
        """Write row i of ``k`` / ``v`` [B, heads, dim] at ``plan.write_indices[i]``."""
        k_pool.view(-1, *k_pool.shape[2:]).index_copy_(0, plan.write_indices, k.to(k_pool.dtype))
        if v is not None and v_pool is not None:
            v_pool.view(-1, *v_pool.shape[2:]).index_copy_(0, plan.write_indices, v.to(v_pool.dtype))

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
        """One query per row, ``q`` [B, Hq, D] -> [B, Hq, D]; the protocol tells of ``topk`` and the rest."""
        if q.shape[0] == 0:
            return torch.empty_like(q)
        if row_exact:
            return self._decode_rows(q, k_pool, v_pool, plan, scale, topk)
        kv_heads, dim = k_pool.shape[2:]
        slots, bias = self._slots(plan, kv_heads, q.dtype, topk)
        shape = (q.shape[0] * kv_heads, slots.numel() // (q.shape[0] * kv_heads), dim)
        keys = self._gather("k", k_pool, slots, q.dtype).view(shape)
        values = self._gather("v", v_pool, slots, q.dtype).view(shape)
        grouped = q.reshape(shape[0], -1, dim)
        if bias is None:
            scores = torch.bmm(grouped, keys.transpose(1, 2)).mul_(scale)
        else:
            scores = torch.baddbmm(bias, grouped, keys.transpose(1, 2), alpha=scale)
        return torch.bmm(torch.softmax(scores, -1), values).view(q.shape)

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
        """Causal attention inside each packed sequence: ``q`` [T, Hq, D], ``k``/``v`` [Tk, Hkv, D]."""
        bounds = as_int_list(cu_seqlens)
        key_bounds = bounds if cu_keys is None else as_int_list(cu_keys)
        out = torch.empty_like(q)
        for (start, stop), (first, last) in zip(pairwise(bounds), pairwise(key_bounds), strict=True):
            part, keys = slice(start, stop), slice(first, last)
            chosen = None if allowed is None else allowed[part]
            if row_exact:
                before = last - first - (stop - start)
                for row in range(stop - start):
                    seen = slice(first, first + before + row + 1)
                    out[start + row] = _attend_row(
                        q[start + row], k[seen], v[seen], scale, None if chosen is None else chosen[row]
                    )
            elif stop > start:
                out[part] = _attend_causal(q[part], k[keys], v[keys], scale, chosen)
        return out

    def select_decode(
        self, index: IndexInputs, k_pool: Tensor, plan: DecodePlan, *, row_exact: bool
    ) -> Tensor:
        """The positions that each decode row attends to, int64 [B, topk], ascending, -1 padded."""
        keys = k_pool.view(-1, k_pool.shape[-1])
        return select_rows(index, keys, plan, row_exact=row_exact)

    def select_prefill(
        self,
        index: IndexInputs,
        cu_seqlens: Tensor | Sequence[int],
        *,
        row_exact: bool,
        cu_keys: Tensor | Sequence[int] | None = None,
    ) -> Tensor:
        """The positions (within its own sequence) that each packed row attends to, int64 [T, topk]."""
        bounds = as_int_list(cu_seqlens)
        key_bounds = bounds if cu_keys is None else as_int_list(cu_keys)
        return select_packed(index, bounds, key_bounds, row_exact=row_exact)

    def _slots(
        self, plan: DecodePlan, kv_heads: int, dtype: torch.dtype, topk: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Flat (slot, head) rows [B * Hkv * L] and the additive mask [B * Hkv, 1, L] of all layers."""
        if topk is not None:
            tokens = plan.token_indices.gather(1, topk.clamp_min(0))
            return _head_major(tokens, kv_heads), _additive(topk >= 0, kv_heads, dtype)
        key = (kv_heads, dtype)
        if key not in plan.derived:
            bias = None if plan.mask is None else _additive(plan.mask, kv_heads, dtype)
            plan.derived[key] = (_head_major(plan.token_indices, kv_heads), bias)
        return plan.derived[key]

    def _gather(self, role: str, pool: Tensor, slots: Tensor, dtype: torch.dtype) -> Tensor:
        rows = pool.view(-1, pool.shape[-1])
        if pool.device.type != "cpu":
            return rows.index_select(0, slots).to(dtype)
        key = (role, pool.dtype, pool.device)
        size = slots.numel() * pool.shape[-1]
        if key not in self._blocks or self._blocks[key].numel() < size:
            with torch.inference_mode(False):
                self._blocks[key] = torch.empty(size + size // 4, dtype=pool.dtype, device=pool.device)
        block = self._blocks[key][:size].view(slots.numel(), pool.shape[-1])
        return torch.index_select(rows, 0, slots, out=block).to(dtype)

    def _decode_rows(
        self,
        q: Tensor,
        k_pool: Tensor,
        v_pool: Tensor,
        plan: DecodePlan,
        scale: float,
        topk: Tensor | None,
    ) -> Tensor:
        keys, values = (pool.view(-1, *pool.shape[2:]) for pool in (k_pool, v_pool))
        out = torch.empty_like(q)
        for row, length in enumerate(plan.kv_len.clamp_min(1).tolist()):
            slots = plan.token_indices[row, :length]
            chosen = None if topk is None else topk[row]
            out[row] = _attend_row(q[row], keys[slots].to(q.dtype), values[slots].to(q.dtype), scale, chosen)
        return out


def _head_major(tokens: Tensor, kv_heads: int) -> Tensor:
    heads = torch.arange(kv_heads, device=tokens.device)[None, :, None]
    return (tokens[:, None, :] * kv_heads + heads).reshape(-1)


def _additive(mask: Tensor, kv_heads: int, dtype: torch.dtype) -> Tensor:
    bias = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))
    return bias.repeat_interleave(kv_heads, 0)[:, None, :]


def _attend_row(q: Tensor, k: Tensor, v: Tensor, scale: float, chosen: Tensor | None) -> Tensor:
    """One query [Hq, D] over [L, Hkv, D]; operands are fresh and contiguous: equal values, equal bits."""
    if chosen is not None:
        live = chosen[chosen >= 0]
        k, v = k[live], v[live]
    grouped = q.reshape(k.shape[1], -1, q.shape[-1]).clone()
    scores = torch.bmm(grouped, k.permute(1, 2, 0).clone(memory_format=torch.contiguous_format)) * scale
    values = v.transpose(0, 1).clone(memory_format=torch.contiguous_format)
    return torch.bmm(torch.softmax(scores, -1), values).view(q.shape)


def _attend_causal(q: Tensor, k: Tensor, v: Tensor, scale: float, chosen: Tensor | None) -> Tensor:
    """The queries are those of the last positions."""
    rows, length = q.shape[0], k.shape[0]
    mask = None
    if chosen is not None:
        columns = torch.where(chosen < 0, length, chosen)
        mask = torch.zeros(rows, length + 1, dtype=torch.bool, device=q.device).scatter_(1, columns, True)
        mask = mask[:, :length]
    elif rows < length:
        mask = torch.ones(rows, length, dtype=torch.bool, device=q.device).tril_(length - rows)
    attended = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        k.transpose(0, 1)[None],
        v.transpose(0, 1)[None],
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return attended[0].transpose(0, 1)
