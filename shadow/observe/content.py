"""Content of the live KV pages, and apart from it that of the position which the step has written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from shadow.digest import page_digests, position_digests
from shadow.observation import Digests, Key, Kind, Observed, Point
from shadow.observe.probe import PlainProbe, Subject, Values
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
            values.update(_content(name, pool, live_rows(subject, pool, kv_len), kv_len))
        return values


def _content(
    name: str, pool: Any, live: Mapping[str, list[int]], kv_len: Mapping[str, int]
) -> Iterator[tuple[Key, Observed]]:
    """Digests of every live page, and apart from them those of the position that this step has written.

    The pages are read without that position: what was there before the step comes first, by page; what the
    step added comes after it, by layer.
    """
    size = pool.config.page_size
    readable = {
        label: pages
        for label, pages in live.items()
        if len(pages) * size >= kv_len[label] and all(0 <= page < pool.config.num_pages for page in pages)
    }
    for part, cache in caches(pool):
        for label, pages in readable.items():
            digests = page_digests(cache, pages, kv_len[label] - 1).numpy()
            yield Key(Kind.KV, label, f"{name}.{part}"), Digests(digests, "page", tokens=size)
    last = {label: kv_len[label] - 1 for label in readable}
    places = [(pages[last[label] // size], last[label] % size) for label, pages in readable.items()]
    for part, cache in caches(pool):
        digests = position_digests(cache, places).numpy()
        for column, label in enumerate(readable):
            written = Digests(digests[:, column : column + 1], "position", first=last[label])
            yield Key(Kind.KV, label, f"{name}.{part}.written"), written
