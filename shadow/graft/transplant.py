"""Taking an input of the coming decode forward out of one worker, and putting it into another.

Loaded only in the process that runs a worker. Everything is by sequence label, so that the order of rows and
the numbers of pages may differ between the workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from shadow.graft.input import Input
from shadow.observe.content import caches
from shadow.observe.probe import Subject
from shadow.observe.tables import live_rows

Material = Mapping[str, Any]
"""By label: token or length (int), page ids by pool, or KV content by "pool.part" (arrays)."""

_PARTS = {Input.KEYS: "k", Input.VALUES: "v", Input.KEYS_AND_VALUES: "kv"}


def take(which: Input, subject: Subject, new_tokens: torch.Tensor, entries: Sequence[Any]) -> Material:
    """The input as this worker has it, right before its forward."""
    labels = [subject.names.label(entry) for entry in entries]
    kv_len = subject.attended()
    match which:
        case Input.TOKENS:
            return dict(zip(labels, new_tokens.tolist(), strict=True))
        case Input.LENGTHS:
            return dict(kv_len)
        case Input.PAGE_TABLE:
            return {name: live_rows(subject, pool, kv_len) for name, pool in subject.pools()}
    return {
        f"{name}.{part}": {
            label: _content(cache, pages, kv_len[label] - 1)
            for label, pages in live_rows(subject, pool, kv_len).items()
        }
        for name, pool in subject.pools()
        for part, cache in caches(pool)
        if part in _PARTS[which]
    }


def put(
    which: Input, material: Material, subject: Subject, new_tokens: torch.Tensor, entries: Sequence[Any]
) -> None:
    """Overwrites the input with `material`; sequences that it does not name stay as they are."""
    labels = [subject.names.label(entry) for entry in entries]
    kv_len = subject.attended()
    match which:
        case Input.TOKENS:
            for row, label in enumerate(labels):
                new_tokens[row] = material.get(label, new_tokens[row])
        case Input.LENGTHS:
            for row, label in enumerate(kv_len):
                if label in material:
                    subject.wrapper.cache_seqlens[row] = material[label]
                    subject.wrapper.position_ids[row] = material[label] - 1
        case Input.PAGE_TABLE:
            for name, pool in subject.pools():
                _put_table(pool, subject, material.get(name, {}))
        case _:
            for name, pool in subject.pools():
                rows = live_rows(subject, pool, kv_len)
                for part, cache in caches(pool):
                    for label, values in material.get(f"{name}.{part}", {}).items():
                        if label in rows:
                            _put_content(cache, rows[label], values)


def _positions(cache: torch.Tensor, pages: Sequence[int], tokens: int) -> torch.Tensor:
    """Flat positions of the first `tokens` tokens that `pages` hold."""
    size = cache.shape[2]
    index = torch.tensor(list(pages), dtype=torch.int64, device=cache.device)
    return (index[:, None] * size + torch.arange(size, device=cache.device)).flatten()[:tokens]


def _content(cache: torch.Tensor, pages: Sequence[int], tokens: int) -> np.ndarray:
    """[layers, tokens, heads, dim] in float32."""
    flat = cache.flatten(1, 2).index_select(1, _positions(cache, pages, tokens))
    content: np.ndarray = flat.float().cpu().numpy()
    return content


def _put_content(cache: torch.Tensor, pages: Sequence[int], values: np.ndarray) -> None:
    tokens = min(values.shape[1], len(pages) * cache.shape[2])
    where = _positions(cache, pages, tokens)
    source = torch.from_numpy(values[:, :tokens]).to(cache.device, cache.dtype)
    cache.view(cache.shape[0], -1, *cache.shape[3:]).index_copy_(1, where, source)


def _put_table(pool: Any, subject: Subject, rows: Mapping[str, Sequence[int]]) -> None:
    slots, host = pool.save_page_table()
    width = max(host.shape[1], *(len(pages) for pages in rows.values()), 1)
    table = torch.full((host.shape[0], width), -1, dtype=host.dtype)
    table[:, : host.shape[1]] = host
    for row, index in enumerate(slots):
        pages = rows.get(subject.names.of_index(index))
        if pages is not None:
            table[row, : len(pages)] = torch.tensor(pages, dtype=host.dtype)
    pool.restore_page_table((slots, table))
