"""The memory of a host pool: the pages, the free list and the owner of each page, in one mapping."""

from __future__ import annotations

import fcntl
import mmap
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from batchgen.kv.pool import KVExhausted, KVPoolConfig, KVStats

_FREE, _ATTACHED, _LISTS = 0, 1, 2  # int64 words: free pages, attached ranks, then free list and owners
_ALIGN = 4096


class HostSegment:
    """One mapping that holds the page tensors, the LIFO free list and the owner of each page.

    `keys` and `values` are [layers, pages, page_size, heads, dim] views of it. Changes of the free list
    happen under a lock of the node. They are ordered such that a rank that dies in the middle loses pages but
    never leaves one to be given twice. Shared memory has no name: it lives as long as a rank maps it.
    """

    def __init__(self, config: KVPoolConfig, memory: mmap.mmap, lock_fd: int | None) -> None:
        self.config = config
        self._lock_fd = lock_fd
        self._thread_lock = threading.Lock()
        self._cleanup: weakref.finalize | None = None
        words = _LISTS + 2 * config.num_pages
        self._words = memoryview(memory)[: words * 8].cast("q")
        shape = (config.num_layers, config.num_pages, config.page_size, config.num_kv_heads, config.head_dim)
        numel = torch.Size(shape).numel()
        starts = _tensor_starts(config)
        tensors = [
            torch.frombuffer(memory, dtype=config.dtype, count=numel, offset=start).view(shape)
            for start in starts
        ]
        self.keys = tensors[0]
        self.values = tensors[1] if config.has_value else None

    def close_with(self, cleanup: Callable[..., None], *args: object) -> None:
        """Have `cleanup(*args)` called by `close()`, or when the interpreter exits."""
        self._cleanup = weakref.finalize(self, cleanup, *args)

    def close(self) -> None:
        """Give up what this process holds besides the mapping, which goes with the last tensor on it."""
        if self._cleanup is not None:
            self._cleanup()

    def format(self) -> None:
        """Make all pages free; only the creator of the memory calls this."""
        for page in range(self.config.num_pages):
            self._words[_LISTS + page] = page
        self._words[_FREE] = self.config.num_pages

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclusive over threads and ranks; a rank that dies lets go of it."""
        with self._thread_lock:
            if self._lock_fd is not None:
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
            try:
                yield
            finally:
                if self._lock_fd is not None:
                    fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def attach(self) -> int:
        """Count this rank in; returns how many ranks are attached now."""
        with self.locked():
            self._words[_ATTACHED] += 1
            return self._words[_ATTACHED]

    def stats(self) -> KVStats:
        free, total = self._words[_FREE], self.config.num_pages
        return KVStats(free, total - free, total)

    def take(self, count: int, owner: int) -> list[int]:
        """Pop `count` pages for `owner` (>= 0), one by one from the end. KVExhausted when there are fewer."""
        owners = _LISTS + self.config.num_pages
        with self.locked():
            free = self._words[_FREE]
            if count > free:
                raise KVExhausted(self.config.name, count, free)
            pages = self._words[_LISTS + free - count : _LISTS + free].tolist()[::-1]
            for page in pages:
                if self._words[owners + page]:
                    raise RuntimeError(
                        f"host KV pool {self.config.name!r}: page {page} is free but belongs to local rank "
                        f"{self._words[owners + page] - 1}; the shared pool is damaged, restart the run"
                    )
            self._words[_FREE] = free - count
            for page in pages:
                self._words[owners + page] = owner + 1
        return pages

    def give_back(self, pages: Sequence[int], owner: int) -> None:
        """Push pages of `owner` in order. RuntimeError when one is not its own; then nothing is freed."""
        owners = _LISTS + self.config.num_pages
        with self.locked():
            free = self._words[_FREE]
            for page in pages:
                if self._words[owners + page] != owner + 1:
                    raise RuntimeError(
                        f"host KV pool {self.config.name!r}: local rank {owner} frees page {page}, which "
                        + (
                            "is free already"
                            if self._words[owners + page] == 0
                            else "belongs to another rank"
                        )
                    )
            for index, page in enumerate(pages):
                self._words[owners + page] = 0
                self._words[_LISTS + free + index] = page
            self._words[_FREE] = free + len(pages)

    def check_invariants(self, owner: int, pages: Sequence[int]) -> None:
        """Each page is free or owned, `owner` owns exactly `pages`. AssertionError naming the page."""
        label = f"host KV pool {self.config.name!r}"
        total = self.config.num_pages
        with self.locked():
            free = self._words[_FREE]
            free_pages = self._words[_LISTS : _LISTS + free].tolist()
            owners = self._words[_LISTS + total : _LISTS + 2 * total].tolist()
        seen: set[int] = set()
        for page in free_pages:
            if page in seen:
                raise AssertionError(f"{label}: page {page} is in the free list twice")
            if owners[page]:
                raise AssertionError(
                    f"{label}: page {page} is in the free list and owned by local rank {owners[page] - 1}"
                )
            seen.add(page)
        lost = [page for page in range(total) if not owners[page] and page not in seen]
        if lost:
            raise AssertionError(f"{label}: pages {lost} are neither free nor owned by a rank")
        owned = [page for page in range(total) if owners[page] == owner + 1]
        if sorted(pages) != owned:
            raise AssertionError(
                f"{label}: local rank {owner} holds pages {sorted(pages)}, the owner list says {owned}"
            )


def private_segment(config: KVPoolConfig) -> HostSegment:
    """Memory of this process alone."""
    memory = mmap.mmap(-1, segment_bytes(config), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    segment = HostSegment(config, memory, None)
    segment.format()
    return segment


def _tensor_starts(config: KVPoolConfig) -> list[int]:
    per_tensor = config.bytes_per_page * config.num_pages // (2 if config.has_value else 1)
    start = _aligned((_LISTS + 2 * config.num_pages) * 8)
    return [start, start + _aligned(per_tensor)] if config.has_value else [start]


def segment_bytes(config: KVPoolConfig) -> int:
    """Size of the mapping that a `HostSegment` of this pool needs."""
    per_tensor = config.bytes_per_page * config.num_pages // (2 if config.has_value else 1)
    return _tensor_starts(config)[-1] + _aligned(per_tensor)


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
