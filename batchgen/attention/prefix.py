"""KV that packed sequences begin with and that lies in the pools already."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

__all__ = ["PrefillPrefix"]


@dataclass(frozen=True)
class PrefillPrefix:
    """``slots`` int64 [P_i] of each packed sequence, in position order: where its first P_i keys lie. ``bounds`` are
    those of the tokens that are computed, which come after them."""

    slots: tuple[Tensor, ...]
    bounds: tuple[int, ...]

    @property
    def cu_keys(self) -> list[int]:
        """Bounds of all keys of each sequence."""
        computed = [stop - start for start, stop in pairwise(self.bounds)]
        lengths = [slots.shape[0] + length for slots, length in zip(self.slots, computed, strict=True)]
        return list(accumulate(lengths, initial=0))

    def before(self, rows: Tensor, pool: Tensor) -> Tensor:
        """``rows`` [T, heads, dim] with what ``pool`` [pages, page, heads, dim] has before each sequence's."""
        flat = pool.view(-1, *pool.shape[2:])
        parts: list[Tensor] = []
        for slots, (start, stop) in zip(self.slots, pairwise(self.bounds), strict=True):
            parts += [flat[slots].to(rows.dtype), rows[start:stop]]
        return torch.cat(parts)
