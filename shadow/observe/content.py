"""Content of the live KV pages, and apart from it that of the position which the step has written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from shadow.digest import digests_of_many, position_digests
from shadow.observation import Digests, Key, Kind, Observed, Point, Vectors
from shadow.observe.probe import PlainProbe, Subject, Values, key
from shadow.observe.sketch import page_sketches, position_vectors
from shadow.observe.tables import live_rows


def caches(pool: Any) -> Iterator[tuple[str, torch.Tensor]]:
    yield "k", pool.k_cache
    if pool.v_cache is not None:
        yield "v", pool.v_cache


class Content(PlainProbe):
    kind = Kind.KV
    points = frozenset((Point.DECODE,))
    structural = False

    def values(self, subject: Subject, point: Point) -> Values:
        kv_len = subject.attended()
        values: Values = {}
        for name, pool in subject.pools():
            live = live_rows(subject, pool, kv_len)
            values.update(_content(name, pool, live, kv_len, numeric=subject.numeric))
        return values


def _content(
    name: str, pool: Any, live: Mapping[str, list[int]], kv_len: Mapping[str, int], *, numeric: bool
) -> Iterator[tuple[Key, Observed]]:
    """Every live page, and apart from them the position that this step has written.

    The pages are read without that position: what was there before the step comes first, by page; what the
    step added comes after it, by layer.
    """
    size = pool.config.page_size
    readable = {
        label: pages
        for label, pages in live.items()
        if len(pages) * size >= kv_len[label] > 0 and all(0 <= page < pool.config.num_pages for page in pages)
    }
    last = {label: kv_len[label] - 1 for label in readable}
    for part, cache in caches(pool):
        contents = pages_of(cache, list(readable.values()), list(last.values()), size, numeric=numeric)
        for label, content in zip(readable, contents, strict=True):
            yield key(Kind.KV, label, f"{name}.{part}"), content
    places = [(pages[last[label] // size], last[label] % size) for label, pages in readable.items()]
    for part, cache in caches(pool):
        positions = positions_of(cache, places, list(last.values()), numeric=numeric)
        for label, content in zip(readable, positions, strict=True):
            yield key(Kind.KV, label, f"{name}.{part}.written"), content


def pages_of(
    cache: torch.Tensor, page_ids: list[list[int]], tokens: list[int], size: int, *, numeric: bool
) -> list[Digests | Vectors]:
    """Digests, or sketches, of the pages that hold the first `tokens[i]` positions of sequence i."""
    if numeric:
        return [Vectors(s.numpy(), "page", tokens=size) for s in page_sketches(cache, page_ids, tokens)]
    return [Digests(d.numpy(), "page", tokens=size) for d in digests_of_many(cache, page_ids, tokens)]


def positions_of(
    cache: torch.Tensor, places: list[tuple[int, int]], positions: list[int], *, numeric: bool
) -> list[Digests | Vectors]:
    """Of one place of each sequence, (page, offset); `positions` says which of its positions that is."""
    if not places:
        return []
    columns = range(len(places))
    if numeric:
        vectors = position_vectors(cache, places).numpy()
        return [Vectors(vectors[:, n : n + 1], "position", first=positions[n]) for n in columns]
    digests = position_digests(cache, places).numpy()
    return [Digests(digests[:, n : n + 1], "position", first=positions[n]) for n in columns]
