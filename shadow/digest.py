"""Position-sensitive digests of KV content, computed where the cache is, bit by bit.

In the memory of the CPU xxHash (XXH3, 64 bits) reads the pages in place. On a device a digest is the sum, modulo
2^64, of every word multiplied by a fixed random odd weight of its place and then mixed. Swapping two words, two
tokens or two pages changes either, which sums, norms and xor do not see. The bits are hashed, not the numbers, so
-0.0 and 0.0 differ and a NaN equals itself. Nothing but zero bits is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch
from xxhash import xxh3_64_intdigest

_WORD = 8  # bytes
_AT_ONCE = 8 << 20  # bytes of pages read at a time: no large temporary, and most of it stays in a cache


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
    return digests_of_many(cache, [page_ids], [tokens])[0]


def digests_of_many(
    cache: torch.Tensor, page_ids: Sequence[Sequence[int]], tokens: Sequence[int]
) -> list[torch.Tensor]:
    """`page_digests` of several sequences, each int64 [layers, its pages], in one pass over the layers."""
    if not _in_memory(cache):
        return live_content(cache, page_ids, tokens, lambda live: _digest_rows(live.flatten(1)))
    size, counts = cache.shape[2], _live_pages(cache, page_ids, tokens)
    runs = [
        (page * size, min(size, length - place * size))
        for ids, length, count in zip(page_ids, tokens, counts, strict=True)
        for place, page in enumerate(ids[:count])
    ]
    return list(_hashes(cache, runs).split(counts, dim=1))


def _in_memory(cache: torch.Tensor) -> bool:
    return cache.device.type == "cpu"


def _hashes(cache: torch.Tensor, runs: Sequence[tuple[int, int]]) -> torch.Tensor:
    """int64 [layers, n] of runs of positions in the CPU's memory: (first, how many), counted through the pages."""
    positions, width = cache.shape[1] * cache.shape[2], cache[0, 0, 0].nbytes
    for first, many in runs:
        if not 0 <= first <= first + many <= positions:
            raise IndexError(f"positions {first} to {first + many} of a cache of {positions}")
    places = [slice(first * width, (first + many) * width) for first, many in runs]
    found = np.empty((len(cache), len(runs)), dtype=np.uint64)
    for layer, row in zip(cache, found, strict=True):
        content = memoryview(layer.contiguous().view(torch.uint8).numpy()).cast("B")
        row[:] = [xxh3_64_intdigest(content[place]) for place in places]
    nothing = np.array([_of_zeros(many * width) for _, many in runs], dtype=np.uint64)
    found[found == nothing] = 0
    return torch.from_numpy(found.view(np.int64))


@lru_cache(maxsize=1 << 10)
def _of_zeros(length: int) -> int:
    return xxh3_64_intdigest(bytes(length))


def _live_pages(cache: torch.Tensor, page_ids: Sequence[Sequence[int]], tokens: Sequence[int]) -> list[int]:
    """How many pages hold the tokens of each sequence. ValueError if it has fewer."""
    size = cache.shape[2]
    counts = [-(-max(0, length) // size) for length in tokens]
    for ids, length, count in zip(page_ids, tokens, counts, strict=True):
        if count > len(ids):
            raise ValueError(f"{length} tokens need {count} pages of {size}; the sequence has {len(ids)}")
    return counts


def live_content(
    cache: torch.Tensor,
    page_ids: Sequence[Sequence[int]],
    tokens: Sequence[int],
    reduce: Callable[[torch.Tensor], torch.Tensor],
) -> list[torch.Tensor]:
    """What `reduce` makes of the live pages, [n, page, heads, dim] -> [n, ...], by sequence (CPU).

    Each is [layers, its pages, ...]; errors as for one sequence. `reduce` may overwrite what it gets.
    """
    size, counts = cache.shape[2], _live_pages(cache, page_ids, tokens)
    named = [page for ids, count in zip(page_ids, counts, strict=True) for page in ids[:count]]
    index = torch.tensor(named, dtype=torch.int64, device=cache.device)
    # Only last pages have a dead part: their rows, and the first dead offset of each.
    last = [(sum(counts[: n + 1]) - 1, length - (counts[n] - 1) * size) for n, length in enumerate(tokens)]
    tails = [
        (row, offset) for (row, offset), count in zip(last, counts, strict=True) if count and offset < size
    ]
    some = max(1, _AT_ONCE // max(1, cache[0, 0].nbytes))
    made = [
        torch.cat(
            [_part(cache[layer], index, tails, start, some, reduce) for start in _starts(len(named), some)]
        )
        for layer in range(cache.shape[0])
    ]
    return list(torch.stack(made).cpu().split(counts, dim=1)) if made else []


def _starts(total: int, some: int) -> range:
    return range(0, max(1, total), some)


def _part(
    layer: torch.Tensor,
    index: torch.Tensor,
    tails: Sequence[tuple[int, int]],
    start: int,
    some: int,
    reduce: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    live = layer.index_select(0, index[start : start + some])
    for row, offset in tails:
        if start <= row < start + some:
            live[row - start, offset:] = 0
    return reduce(live)


def position_digests(cache: torch.Tensor, slots: list[tuple[int, int]]) -> torch.Tensor:
    """int64 [layers, n] (CPU) of the content of single positions, each given as (page id, offset in page)."""
    if _in_memory(cache):
        return _hashes(cache, [(page * cache.shape[2] + offset, 1) for page, offset in slots])
    page = torch.tensor([slot[0] for slot in slots], dtype=torch.int64, device=cache.device)
    offset = torch.tensor([slot[1] for slot in slots], dtype=torch.int64, device=cache.device)
    content = cache[:, page, offset].flatten(0, 1).flatten(1)
    return _digest_rows(content).reshape(cache.shape[0], len(slots)).cpu()
