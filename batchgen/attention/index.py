"""Choosing the positions that a query attends to from cached index keys.

The score of a position is ``sum_h w[h] * relu(q[h] . k[position])``.  The ``topk`` best are taken, the
earlier position winning a tie, and given back in ascending order: a plain function of the values, so that
prefill and decode choose alike.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from batchgen.attention.protocol import DecodePlan, IndexInputs

__all__ = ["select_packed", "select_rows"]


def select_rows(index: IndexInputs, keys: Tensor, plan: DecodePlan, *, row_exact: bool) -> Tensor:
    """Decode: choose for each row among its live positions; ``keys`` [slots, Di] is the flattened pool."""
    if row_exact:
        rows = [
            _select_one(index.q[i], keys[plan.token_indices[i, :length]], index.weights[i], index.topk)
            for i, length in enumerate(plan.kv_len.clamp_min(1).tolist())
        ]
        return _stack(rows, index)
    scores = torch.einsum("bhd,bld->bhl", index.q, keys[plan.token_indices].to(index.q.dtype)).relu_()
    scores = torch.einsum("bhl,bh->bl", scores, index.weights)
    if plan.mask is not None:
        scores.masked_fill_(~plan.mask, float("-inf"))
    return _best(scores, index.topk)


def select_packed(index: IndexInputs, bounds: list[int], key_bounds: list[int], *, row_exact: bool) -> Tensor:
    """Prefill: choose for each packed row among the positions of its own sequence up to itself."""
    keys = index.k[:, 0]
    chosen: list[Tensor] = []
    for (start, stop), (first, last) in zip(pairwise(bounds), pairwise(key_bounds), strict=True):
        part, before = slice(start, stop), last - first - (stop - start)
        if row_exact:
            chosen += [
                _select_one(
                    index.q[row],
                    keys[first : first + before + row - start + 1],
                    index.weights[row],
                    index.topk,
                )
                for row in range(start, stop)
            ]
            continue
        scores = torch.einsum("thd,sd->ths", index.q[part], keys[first:last]).relu_()
        scores = torch.einsum("ths,th->ts", scores, index.weights[part])
        future = torch.ones_like(scores, dtype=torch.bool).triu_(1 + before)
        chosen.append(_best(scores.masked_fill_(future, float("-inf")), index.topk))
    return _stack(chosen, index) if row_exact else torch.cat(chosen)


def _select_one(q: Tensor, keys: Tensor, weights: Tensor, topk: int) -> Tensor:
    scores = torch.mm(q.clone(), keys.to(q.dtype).t().clone(memory_format=torch.contiguous_format)).relu_()
    return _best((scores * weights[:, None]).sum(0, keepdim=True), topk)[0]


def _best(scores: Tensor, topk: int) -> Tensor:
    """[N, L] scores (-inf: not a candidate) -> int64 [N, topk] positions, ascending, -1 padded."""
    length = scores.shape[1]
    order = torch.sort(scores, dim=1, descending=True, stable=True)
    best, values = order.indices[:, :topk], order.values[:, :topk]
    positions = best.masked_fill(values == float("-inf"), length).sort(dim=1).values
    positions = positions.masked_fill(positions == length, -1)
    return torch.nn.functional.pad(positions, (0, topk - positions.shape[1]), value=-1)


def _stack(rows: list[Tensor], index: IndexInputs) -> Tensor:
    if not rows:
        return torch.empty(0, index.topk, dtype=torch.int64, device=index.q.device)
    return torch.stack(rows)
