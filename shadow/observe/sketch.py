"""KV content as numbers that can be scored, for sides of which the bits differ by intent.

A page becomes, for each layer and head, a few numbers: its content times a fixed matrix of random signs. That is
linear, so the sketch of a difference is the difference of the sketches, and the relative L2 of two sketches
estimates that of the pages (within a third or so, 16 numbers each); a place has signs of its own, so that swapped
positions show.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from shadow.digest import live_content

NUMBERS = 16


@lru_cache(maxsize=8)
def _signs(length: int, device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0x5AAD0)
    signs = torch.randint(0, 2, (length, NUMBERS), generator=generator, dtype=torch.int8) * 2 - 1
    return signs.float().to(device)


def sketch(pages: torch.Tensor) -> torch.Tensor:
    """float32 [n, heads, NUMBERS] of pages [n, page, heads, dim]."""
    by_head = pages.float().transpose(1, 2).flatten(2)
    return by_head @ _signs(by_head.shape[-1], by_head.device)


def page_sketches(cache: torch.Tensor, page_ids: list[list[int]], tokens: list[int]) -> list[torch.Tensor]:
    """float32 [layers, its pages, heads, NUMBERS] of each sequence (CPU), stale places left out."""
    return live_content(cache, page_ids, tokens, sketch)


def position_vectors(cache: torch.Tensor, slots: list[tuple[int, int]]) -> torch.Tensor:
    """float32 [layers, n, heads, dim] (CPU) of single positions, each (page, offset in it)."""
    page = torch.tensor([slot[0] for slot in slots], dtype=torch.int64, device=cache.device)
    offset = torch.tensor([slot[1] for slot in slots], dtype=torch.int64, device=cache.device)
    return cache[:, page, offset].float().cpu()
