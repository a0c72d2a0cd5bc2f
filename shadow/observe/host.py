"""Content of the host pools, and what is on its way there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import torch

from shadow.observation import Key, Kind, Observed, Point
from shadow.observe.content import pages_of, positions_of
from shadow.observe.pools import host_pages
from shadow.observe.probe import PlainProbe, Subject, Values, key, keys

_LIVE = ("PREFILLED", "IN_DECODE", "ON_HOLD")


class HostContent(PlainProbe):
    """The host holds positions [0, context - 1) of every live sequence of this rank: the newest has no KV yet.

    All of it at each boundary, and when a sequence decodes for the first time since its prefill; at other steps the
    position that the step before has appended. Copies under way are waited for, which changes nothing but time.
    """

    kind = Kind.HOST_KV
    points = frozenset((Point.PREFILL, Point.DECODE, Point.BOUNDARY, Point.END))
    structural = False

    def __init__(self) -> None:
        self._known: set[str] = set()

    def missing(self, subject: Subject) -> str | None:
        return None if any(True for _ in subject.hosts()) else "it has no host pool that can be read"

    def install(self, subject: Subject) -> None:
        self._known = set()

    def values(self, subject: Subject, point: Point) -> Values:
        labels = {subject.names.label(entry) for entry in subject.entries}
        if point in (Point.PREFILL, Point.END):
            self._known -= labels
            return {}
        entries = [entry for entry in subject.entries if getattr(entry.status, "name", "") in _LIVE]
        lengths = {entry.global_idx: entry.current_context_length - 1 for entry in entries}
        decode = point is Point.DECODE
        known = {g for g in lengths if decode and subject.names.of_index(g) in self._known}
        self._known |= {subject.names.of_index(g) for g in lengths} if decode else set()
        values: Values = {}
        for name, view in subject.hosts():
            drain = getattr(getattr(view, "_tasks", None), "drain", None)
            if drain is not None:
                drain()
            for part, cache in _caches(view):
                field = f"{name}.{part}"
                whole = {gid: length for gid, length in lengths.items() if gid not in known}
                values.update(_pages(subject, view, field, cache, whole))
                # the copy of this step begins later: its last position is not there yet
                newest = {gid: lengths[gid] - 1 for gid in known}
                values.update(_positions(subject, view, field, cache, newest))
        return values


def _caches(view: Any) -> Iterator[tuple[str, torch.Tensor]]:
    yield "k", view._segment.keys
    if view._segment.values is not None:
        yield "v", view._segment.values


def _pages(
    subject: Subject, view: Any, field: str, cache: torch.Tensor, lengths: Mapping[int, int]
) -> Iterator[tuple[Key, Observed]]:
    size, held = view.config.page_size, host_pages(view)
    readable = {}
    for gid, length in lengths.items():
        pages = held.get(gid)
        if pages is None:
            continue
        if len(pages) * size < length or any(not 0 <= page < cache.shape[1] for page in pages):
            place = key(Kind.HOST_KV, subject.names.of_index(gid), field)
            yield place, f"{len(pages)} pages for {length} tokens"
        else:
            readable[gid] = pages
    tokens = [lengths[gid] for gid in readable]
    contents = pages_of(cache, list(readable.values()), tokens, size, numeric=subject.numeric)
    for gid, content in zip(readable, contents, strict=True):
        yield key(Kind.HOST_KV, subject.names.of_index(gid), field), content


def _positions(
    subject: Subject, view: Any, field: str, cache: torch.Tensor, positions: Mapping[int, int]
) -> Iterator[tuple[Key, Observed]]:
    size, held = view.config.page_size, host_pages(view)
    places, readable = [], []
    for gid, position in positions.items():
        pages = held.get(gid, [])
        if 0 <= position < len(pages) * size and 0 <= pages[position // size] < cache.shape[1]:
            places.append((pages[position // size], position % size))
            readable.append(gid)
        else:
            text = f"{len(pages)} pages have no position {position}"
            yield key(Kind.HOST_KV, subject.names.of_index(gid), f"{field}.appended"), text
    at = [positions[gid] for gid in readable]
    contents = positions_of(cache, places, at, numeric=subject.numeric)
    for gid, content in zip(readable, contents, strict=True):
        yield key(Kind.HOST_KV, subject.names.of_index(gid), f"{field}.appended"), content


class Pending(PlainProbe):
    """What the forward has collected for the host, before it is handed over, and how many copies are under way."""

    kind = Kind.PENDING
    points = frozenset((Point.DECODE,))
    structural = True

    def missing(self, subject: Subject) -> str | None:
        return None if hasattr(subject.worker, "_deferred_kv_entries") else "it collects nothing for the host"

    def values(self, subject: Subject, point: Point) -> Values:
        worker, values = subject.worker, Values()
        batch = getattr(worker, "_deferred_kv_batch", None)
        collected, positions = batch or ((), ())
        labels = tuple(subject.names.of_indices(collected))
        values.update(zip(keys(Kind.PENDING, labels, ("position",)), map(int, positions), strict=False))
        for name in ("_deferred_kv_entries", "_deferred_kv_entries_aux"):
            entries = getattr(worker, name, None) or ()
            values[key(Kind.PENDING, None, name.lstrip("_"))] = tuple(_collected(entry) for entry in entries)
        for name in ("_pending_kv_append_tasks", "_pending_kv_append_tensors"):
            values[key(Kind.PENDING, None, name.lstrip("_"))] = len(getattr(worker, name, None) or ())
        return values


def _collected(entry: Any) -> str:
    layer, k, v = entry
    return _shapes(layer, k.shape, None if v is None else v.shape)


@lru_cache(maxsize=1 << 10)
def _shapes(layer: int, k: tuple[int, ...], v: tuple[int, ...] | None) -> str:
    return f"layer {layer}: k {list(k)}, v {None if v is None else list(v)}"
