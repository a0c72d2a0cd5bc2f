"""Position-sensitive digests of KV content, computed where the cache is (CPU or GPU), bit by bit.

A digest is the sum, modulo 2^64, of every word multiplied by a fixed random odd weight of its place and then
mixed: swapping two words, two tokens or two pages changes it, which sums, norms and xor do not see. The bits
are hashed, not the numbers, so -0.0 and 0.0 differ and a NaN equals itself.
"""

from __future__ import annotations

from functools import lru_cache

import torch

_WORD = 8  # bytes


@lru_cache(maxsize=8)
def _weights(words: int, device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0x5AAD0)
    weights = torch.randint(-(2**63), 2**63 - 1, (words,), generator=generator, dtype=torch.int64)
    return (weights | 1).to(device)


def _digest_rows(rows: torch.Tensor) -> torch.Tensor:
    """int64 [n] of rows [n, elements], which it overwrites. ValueError: bytes per row not a multiple of 8."""
    if rows.shape[1] * rows.element_size() % _WORD:
        raise ValueError(
            f"a row of {rows.shape[1]} x {rows.element_size()} bytes is not a multiple of {_WORD}"
        )
    words = rows.view(torch.int64)
    words.mul_(_weights(words.shape[1], words.device))
    words.bitwise_xor_(words >> 29)
    return words.sum(dim=1)


def page_digests(cache: torch.Tensor, page_ids: list[int], tokens: int) -> torch.Tensor:
    """int64 [layers, pages] (CPU) over the first `tokens` positions that `page_ids` hold.

    `cache` is [layers, pool pages, page, heads, dim]; positions beyond `tokens` are read as zero bits, so
    that stale content behind the live prefix does not count. ValueError if the pages cannot hold the tokens.
    """
    layers, _, page_size = cache.shape[:3]
    pages = -(-tokens // page_size)
    if pages > len(page_ids):
        raise ValueError(
            f"{tokens} tokens need {pages} pages of {page_size}; the sequence has {len(page_ids)}"
        )
    index = torch.tensor(page_ids[:pages], dtype=torch.int64, device=cache.device)
    out = torch.empty(layers, pages, dtype=torch.int64, device=cache.device)
    tail = tokens - (pages - 1) * page_size
    for layer in range(layers):
        live = cache[layer].index_select(0, index)
        if pages:
            live[-1, tail:] = 0
        out[layer] = _digest_rows(live.flatten(1))
    return out.cpu()


def position_digests(cache: torch.Tensor, slots: list[tuple[int, int]]) -> torch.Tensor:
    """int64 [layers, n] (CPU) of the content of single positions, each given as (page id, offset in page)."""
    page = torch.tensor([slot[0] for slot in slots], dtype=torch.int64, device=cache.device)
    offset = torch.tensor([slot[1] for slot in slots], dtype=torch.int64, device=cache.device)
    content = cache[:, page, offset].flatten(0, 1).flatten(1)
    return _digest_rows(content).reshape(cache.shape[0], len(slots)).cpu()
