"""The sequences that one rank keeps in the host pool: their pages, and where a position lies in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch

from batchgen.kv.host_segment import HostSegment
from batchgen.kv.pool import KVPoolConfig, KVStats, padded_page_table

Ints = Sequence[int] | torch.Tensor


class HostSequences:
    """Registered sequences and their page lists; the pages come from the free list that the node shares.

    Operations on several sequences are atomic: an error leaves everything as it was. `on_release` is told of the
    sequences whose pages have been released.
    """

    def __init__(self, config: KVPoolConfig, segment: HostSegment, local_rank: int) -> None:
        self.config = config
        self.local_rank = local_rank
        self._label = f"host KV pool {config.name!r}"
        self._open_segment: HostSegment | None = segment
        self._pages: dict[int, list[int]] = {}
        self.on_release: Callable[[Sequence[int]], None] | None = None

    @property
    def _segment(self) -> HostSegment:
        if self._open_segment is None:
            raise RuntimeError(f"{self._label} is closed")
        return self._open_segment

    def close(self) -> None:
        """Give all pages back and let go of the memory. Idempotent."""
        if self._open_segment is not None:
            pages = [page for pages in self._pages.values() for page in pages]
            self._open_segment.give_back(pages, self.local_rank)
            self._pages.clear()
            self._open_segment.close()
            self._open_segment = None

    def register_sequences(self, sequence_ids: Ints) -> None:
        """ValueError when one is registered already, or named twice; then none is registered."""
        ids = as_ints(sequence_ids)
        known = [gid for gid in ids if gid in self._pages] + _repeated(ids)
        if known:
            raise ValueError(f"{self._label}: sequences {known} are registered already; release them first")
        self._pages.update((gid, []) for gid in ids)

    def unregister_sequences(self, sequence_ids: Ints) -> None:
        """KeyError for an unknown id, RuntimeError for one that still holds pages; then nothing changes."""
        ids = as_ints(sequence_ids)
        self.check_known(ids)
        holding = [gid for gid in ids if self._pages[gid]]
        if holding:
            raise RuntimeError(
                f"{self._label}: sequences {holding} still hold pages; call release_sequence_pages"
            )
        for gid in ids:
            del self._pages[gid]

    def allocate_pages_for_sequences(self, items: Sequence[tuple[int, int]]) -> None:
        """items: (sequence id, TOKENS). Gives registered sequences their first pages; atomic.

        KeyError when not registered, ValueError when it has pages already, KVExhausted.
        """
        ids = [gid for gid, _ in items]
        self.check_known(ids)
        holding = [gid for gid in ids if self._pages[gid]]
        if holding:
            raise ValueError(f"{self._label}: sequences {holding} already have pages; grow them instead")
        self._take(ids, [self.config.pages_for(tokens) for _, tokens in items])

    def grow_pages_for_sequences(self, items: Sequence[tuple[int, int]]) -> None:
        """items: (sequence id, PAGES to add); atomic. KeyError when not registered, KVExhausted."""
        ids = [gid for gid, _ in items]
        self.check_known(ids)
        negative = [gid for gid, count in items if count < 0]
        if negative:
            raise ValueError(f"{self._label}: sequences {negative} cannot grow by a negative number of pages")
        self._take(ids, [count for _, count in items])

    def release_sequence_pages(self, sequence_ids: Ints) -> None:
        """Free the pages and unregister. KeyError on an unknown or repeated id, before anything changes."""
        ids = as_ints(sequence_ids)
        self.check_known(ids)
        self._give_back([page for gid in ids for page in self._pages[gid]])
        for gid in ids:
            del self._pages[gid]
        if self.on_release is not None:
            self.on_release(ids)

    def _give_back(self, pages: Sequence[int]) -> None:
        self._segment.give_back(pages, self.local_rank)

    def check_known(self, ids: Sequence[int]) -> None:
        """KeyError on an id that is not registered or is named twice."""
        for gid in ids:
            if gid not in self._pages:
                raise KeyError(f"{self._label}: sequence {gid} is not registered")
        if twice := _repeated(ids):
            raise KeyError(f"{self._label}: sequences {twice} are named twice in one call")

    def _take(self, ids: Sequence[int], counts: Sequence[int]) -> None:
        pages = iter(self._segment.take(sum(counts), self.local_rank))
        for gid, count in zip(ids, counts, strict=True):
            self._pages[gid].extend(next(pages) for _ in range(count))

    def shrink_pages_for_sequence(self, gid: int, num_pages: int) -> None:
        """Give the last pages back, so that `num_pages` stay: takes back an allocation."""
        self.check_known([gid])
        self._give_back(self._pages[gid][num_pages:][::-1])
        del self._pages[gid][num_pages:]

    def has_sequence(self, gid: int) -> bool:
        return gid in self._pages

    def page_count(self, gid: int) -> int:
        """KeyError when not registered."""
        self.check_known([gid])
        return len(self._pages[gid])

    def sequence_ids(self) -> list[int]:
        return list(self._pages)

    def get_stats(self) -> KVStats:
        """Counters of the whole node, as of now."""
        return self._segment.stats()

    def build_page_table(self, sequence_ids: Ints) -> torch.Tensor:
        """int32 CPU [n, most pages], padded with -1. KeyError when not registered."""
        ids = as_ints(sequence_ids)
        self.check_known(ids)
        return padded_page_table([self._pages[gid] for gid in ids])

    def check_positions(self, ids: Sequence[int], first: Sequence[int], last: Sequence[int]) -> None:
        """Every sequence is known, named once, and has a page for each of its positions first..last."""
        for gid, low, high in zip(ids, first, last, strict=True):
            if gid not in self._pages:
                raise RuntimeError(f"{self._label}: sequence {gid} is not registered, its KV has no place")
            if low < 0 or high >= len(self._pages[gid]) * self.config.page_size:
                raise RuntimeError(
                    f"{self._label}: sequence {gid} cannot hold positions {low}..{high}, it has "
                    f"{len(self._pages[gid])} pages of {self.config.page_size} tokens; grow it first"
                )
        if twice := _repeated(ids):
            raise RuntimeError(f"{self._label}: sequences {twice} are named twice in one batch")

    def slots_of_ranges(
        self, ids: Sequence[int], starts: Sequence[int], lengths: Sequence[int]
    ) -> torch.Tensor:
        """int64 [sum(lengths)]: page * page_size + offset of each position."""
        counts = torch.tensor(lengths, dtype=torch.int64)
        row = torch.repeat_interleave(torch.arange(len(ids)), counts)
        first_index = torch.cumsum(counts, 0) - counts
        position = torch.arange(len(row)) - (first_index - torch.tensor(starts, dtype=torch.int64))[row]
        table = padded_page_table([self._pages[gid] for gid in ids]).to(torch.int64)
        page = self.config.page_size
        return table[row, position // page] * page + position % page

    def slots_of_positions(self, ids: Sequence[int], positions: Sequence[int]) -> torch.Tensor:
        """int64 [B]: page * page_size + offset of one position per sequence."""
        page = self.config.page_size
        slots = [
            self._pages[gid][position // page] * page + position % page
            for gid, position in zip(ids, positions, strict=True)
        ]
        return torch.tensor(slots, dtype=torch.int64)

    def check_invariants(self) -> None:
        """No page is shared or lost, on the whole node. AssertionError naming page and sequence."""
        holder: dict[int, int] = {}
        for gid, pages in self._pages.items():
            for page in pages:
                if page in holder:
                    raise AssertionError(
                        f"{self._label}: page {page} is held by sequences {holder[page]} and {gid}"
                    )
                holder[page] = gid
        self._segment.check_invariants(self.local_rank, list(holder))


def as_ints(values: Ints) -> list[int]:
    """Ids, positions and counts arrive as lists or as integer tensors."""
    return values.tolist() if isinstance(values, torch.Tensor) else list(values)


def _repeated(ids: Sequence[int]) -> list[int]:
    if len(set(ids)) == len(ids):
        return []
    return [gid for gid, times in Counter(ids).items() if times > 1]
