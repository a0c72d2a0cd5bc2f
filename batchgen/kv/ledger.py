"""Who owns which page: the integer bookkeeping of a pool, without any tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from batchgen.kv.pool import KVExhausted


class PageLedger:
    """A LIFO free list and the pages of each sequence, in order.

    Pages are popped one by one from the end of the free list and freed pages are pushed back in the order in
    which the sequence held them, so page ids are a function of the exact order of calls. Every operation
    checks first and changes afterwards: an error leaves the ledger as it was.
    """

    def __init__(self, pool: str, num_pages: int) -> None:
        self.pool = pool
        self.label = f"KV pool {pool!r}"
        self.num_pages = num_pages
        self.free_pages: list[int] = list(range(num_pages))
        self.sequences: dict[int, list[int]] = {}
        #: Grows with every change: what was decided on another state can be told by it.
        self.generation = 0

    def check_take(self, sequence_ids: Sequence[int], counts: Sequence[int], *, new: bool) -> None:
        """Raise what `take` would raise, without changing anything."""
        if len(sequence_ids) != len(counts):
            raise ValueError(
                f"{self.label}: {len(sequence_ids)} sequence ids but {len(counts)} sizes were given"
            )
        if len(set(sequence_ids)) != len(sequence_ids):
            twice = [sid for sid, times in Counter(sequence_ids).items() if times > 1]
            raise ValueError(f"{self.label}: sequences {twice} are named twice in one call")
        if new:
            for sid in sequence_ids:
                if sid in self.sequences:
                    raise ValueError(
                        f"{self.label}: sequence {sid} already holds {len(self.sequences[sid])} pages; "
                        "extend or grow it, or free it first"
                    )
        else:
            self.check_known(sequence_ids)
        for sid, count in zip(sequence_ids, counts, strict=True):
            if count < 0:
                raise ValueError(f"{self.label}: sequence {sid} asks for {count} pages, must be >= 0")
        need = sum(counts)
        if need > len(self.free_pages):
            raise KVExhausted(self.pool, need, len(self.free_pages))

    def check_known(self, sequence_ids: Sequence[int]) -> None:
        """KeyError naming the first sequence that holds no pages here."""
        for sid in sequence_ids:
            if sid not in self.sequences:
                raise KeyError(f"{self.label}: sequence {sid} is not allocated")

    def take(self, sequence_ids: Sequence[int], counts: Sequence[int], *, new: bool) -> dict[int, list[int]]:
        """Give `counts[i]` pages to sequence i; returns the pages given by this call.

        `new=True` starts sequences (ValueError if one exists), `new=False` appends to existing ones (KeyError
        if one does not). KVExhausted when the free list is too short.
        """
        self.check_take(sequence_ids, counts, new=new)
        self.generation += 1
        taken: dict[int, list[int]] = {}
        for sid, count in zip(sequence_ids, counts, strict=True):
            taken[sid] = [self.free_pages.pop() for _ in range(count)]
            self.sequences.setdefault(sid, []).extend(taken[sid])
        return taken

    def undo_take(self, taken: dict[int, list[int]], *, new: bool) -> None:
        """Exact inverse of the last `take`: the free list is again what it was, order included."""
        self.generation += 1
        for sid in reversed(taken):
            pages = taken[sid]
            self.free_pages.extend(reversed(pages))
            if new:
                del self.sequences[sid]
            else:
                del self.sequences[sid][len(self.sequences[sid]) - len(pages) :]

    def check_release(self, sequence_ids: Sequence[int]) -> None:
        """Raise what `release` would raise, without changing anything."""
        self.check_known(sequence_ids)
        if len(set(sequence_ids)) != len(sequence_ids):
            twice = [sid for sid, times in Counter(sequence_ids).items() if times > 1]
            raise KeyError(f"{self.label}: sequences {twice} would be freed twice in one call")

    def release(self, sequence_ids: Sequence[int]) -> None:
        """Give all pages of the sequences back. KeyError on an unknown or repeated id."""
        self.check_release(sequence_ids)
        self.generation += 1
        for sid in sequence_ids:
            self.free_pages.extend(self.sequences.pop(sid))

    def check_regroup(self, old: Sequence[int], new: Mapping[int, Sequence[int]]) -> None:
        """Raise what `regroup` would raise, without changing anything."""
        self.check_release(old)
        held = sorted(page for sid in old for page in self.sequences[sid])
        if sorted(page for pages in new.values() for page in pages) != held:
            raise ValueError(
                f"{self.label}: sequences {list(old)} hold pages {held}, regrouped as {dict(new)}"
            )
        taken = [sid for sid in new if sid in self.sequences and sid not in old]
        if taken:
            raise ValueError(f"{self.label}: sequences {taken} hold pages already; regroup them as well")

    def regroup(self, old: Sequence[int], new: Mapping[int, Sequence[int]]) -> None:
        """The pages of the old sequences, which end, belong to the new ones from now on; no page becomes free.

        KeyError on an unknown or repeated old sequence, ValueError where the pages are not the same ones or a new
        sequence exists; nothing has changed then.
        """
        self.check_regroup(old, new)
        self.generation += 1
        for sid in old:
            del self.sequences[sid]
        self.sequences.update({sid: list(pages) for sid, pages in new.items()})

    def check_invariants(self) -> None:
        """Every page is in exactly one place. AssertionError naming page and sequence."""
        place: dict[int, str] = {}
        holders = [("the free list", self.free_pages)]
        holders += [(f"sequence {sid}", pages) for sid, pages in self.sequences.items()]
        for holder, pages in holders:
            for page in pages:
                if not 0 <= page < self.num_pages:
                    raise AssertionError(f"{self.label}: {holder} names page {page}, not in the pool")
                if page in place:
                    raise AssertionError(f"{self.label}: page {page} is in {place[page]} and in {holder}")
                place[page] = holder
        if len(place) != self.num_pages:
            lost = sorted(set(range(self.num_pages)) - set(place))
            raise AssertionError(f"{self.label}: pages {lost} are neither free nor owned by a sequence")
