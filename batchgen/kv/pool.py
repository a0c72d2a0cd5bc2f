"""Values shared by all KV pools: configuration, counters, load targets and the exhaustion error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class KVPoolConfig:
    """Shape of one paged pool, on the GPU or on the host.

    `num_pages` counts usable pages (a GPU pool holds one scratch page more). `has_value=False` makes a
    keys-only pool. The `graph_*` sizes bound the page table that captured decode graphs read.
    """

    name: str
    num_layers: int
    num_pages: int
    page_size: int
    num_kv_heads: int
    head_dim: int
    has_value: bool = True
    dtype: torch.dtype = torch.float32
    max_slots: int = 256
    graph_max_slots: int = 1
    graph_max_pages: int = 1

    def __post_init__(self) -> None:
        for field in (
            "num_layers",
            "num_pages",
            "page_size",
            "num_kv_heads",
            "head_dim",
            "max_slots",
            "graph_max_slots",
            "graph_max_pages",
        ):
            if getattr(self, field) < 1:
                raise ValueError(
                    f"KV pool {self.name!r}: {field} must be at least 1, got {getattr(self, field)}"
                )

    @property
    def bytes_per_page(self) -> int:
        """Bytes of one page over all layers, keys and values."""
        elements = self.num_layers * self.page_size * self.num_kv_heads * self.head_dim
        return elements * self.dtype.itemsize * (2 if self.has_value else 1)

    def pages_for(self, num_tokens: int) -> int:
        """Pages that hold `num_tokens` tokens. ValueError when negative."""
        if num_tokens < 0:
            raise ValueError(f"KV pool {self.name!r}: a token count cannot be negative, got {num_tokens}")
        return -(-num_tokens // self.page_size)


@dataclass(frozen=True)
class KVStats:
    """Page counters of a pool; all zero when the pool is not initialised."""

    num_free_pages: int
    num_used_pages: int
    num_total_pages: int


class PagePointers:
    """Where to load: `storage` [layers, pages, page, heads, dim] and `page_ids` int32 [slots, max_pages].

    `page_ids` lies on the CPU, is padded with -1, and is a copy: it stays what it was when the page table it
    came from is rebuilt. No value: `storage` is the pool's own, into which others write meanwhile, so two of them are
    the same only where they are one object.
    """

    def __init__(self, storage: torch.Tensor, page_ids: torch.Tensor) -> None:
        self.storage, self.page_ids = storage, page_ids


class KVExhausted(RuntimeError):
    """A pool has fewer free pages than an operation needs. Nothing was changed."""

    def __init__(self, pool: str, need: int, free: int) -> None:
        super().__init__(pool, need, free)
        self.pool, self.need, self.free = pool, need, free

    def __str__(self) -> str:
        return (
            f"KV pool {self.pool!r}: {self.need} pages needed, {self.free} free; "
            "free some sequences first or configure a larger pool"
        )


def padded_page_table(rows: Sequence[Iterable[int]]) -> torch.Tensor:
    """int32 CPU tensor [len(rows), longest row], each row padded with -1 on the right."""
    lists = [list(row) for row in rows]
    width = max(map(len, lists), default=0)
    if width == 0:
        return torch.empty((len(lists), 0), dtype=torch.int32)
    return torch.tensor([row + [-1] * (width - len(row)) for row in lists], dtype=torch.int32)
