"""The attention boundary: what a decode plan holds, and what a backend must be able to do with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

__all__ = ["AttentionBackend", "DecodePlan", "IndexInputs", "PlansAhead"]


@dataclass(frozen=True)
class DecodePlan:
    """Where the KV of each row of one decode forward lies.  A slot is ``page * page_size + offset``.

    ``token_indices`` int64 [B, Lmax]: slot of each position.  Positions at or beyond ``kv_len`` repeat
    the row's last live slot, so that neither a dead page nor an unwritten slot is ever read.
    ``kv_len`` int64 [B]: live positions with the token that this forward appends; 0 for a padded row.
    ``mask`` bool [B, Lmax], True where a position is attended to, or None when every row fills Lmax.
    A padded row attends to its one (scratch) slot, which keeps it finite.
    ``write_indices`` int64 [B]: slot of position ``kv_len - 1``; the scratch page for a padded row.
    ``derived`` is the backend's memo of what it computes from the plan once and uses in every layer: a
    plan is never refreshed in place, the next forward builds its own.
    """

    token_indices: Tensor
    kv_len: Tensor
    mask: Tensor | None
    write_indices: Tensor
    max_seqlen: int
    derived: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class IndexInputs:
    """Index-key side of one layer: queries [T, Hi, Di], keys [T, 1, Di] (cached; in a prefill with ``cu_keys`` one for
    each key), head weights [T, Hi]."""

    q: Tensor
    k: Tensor
    weights: Tensor
    topk: int


class AttentionBackend(Protocol):
    """Paged decode attention and packed causal prefill attention over pools [pages, page_size, heads, dim].

    ``topk`` (decode) and ``allowed`` (prefill) restrict row i to the given positions of its own
    sequence: int64 [rows, K], ascending, padded with -1 at the end, the first entry valid.
    ``row_exact`` computes every row by itself, so that its result does not depend on the other rows and
    a prefilled row equals the same row decoded, bit for bit.

    ``cu_keys`` (prefill) bounds the keys of each packed sequence where it has more of them than queries: its queries
    are those of its last positions. None: as ``cu_seqlens``.
    """

    name: str

    def plan_decode(
        self,
        page_table: Tensor,
        kv_len: Tensor,
        page_size: int,
        scratch_page_id: int,
        max_seqlen: int | None = None,
    ) -> DecodePlan: ...

    def append(
        self, k: Tensor, v: Tensor | None, k_pool: Tensor, v_pool: Tensor | None, plan: DecodePlan
    ) -> None: ...

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
    ) -> Tensor: ...

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
    ) -> Tensor: ...

    def select_decode(
        self, index: IndexInputs, k_pool: Tensor, plan: DecodePlan, *, row_exact: bool
    ) -> Tensor: ...

    def select_prefill(
        self,
        index: IndexInputs,
        cu_seqlens: Tensor | Sequence[int],
        *,
        row_exact: bool,
        cu_keys: Tensor | Sequence[int] | None = None,
    ) -> Tensor: ...


@runtime_checkable
class PlansAhead(Protocol):
    """A backend that cannot plan inside a CUDA graph capture."""

    def plan_ahead(self, page_table: Tensor, kv_len: Tensor, page_size: int, scratch_page_id: int) -> None:
        """Plan for what the tensors of a captured step hold now: before its capture, and before each replay."""
        ...


def as_int_list(cu_seqlens: Tensor | Sequence[int]) -> list[int]:
    return cu_seqlens.tolist() if isinstance(cu_seqlens, torch.Tensor) else list(cu_seqlens)
