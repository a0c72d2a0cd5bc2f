"""What the pools keep beside their tensors: free lists, pages by sequence; tolerant of pools that have none."""

from __future__ import annotations

from typing import Any


def free_pages(pool: Any) -> list[int] | None:
    """The free list of a GPU pool, the next page to be given last; None where the pool keeps none."""
    ledger = getattr(getattr(pool, "_pool", None), "ledger", None)
    pages = getattr(ledger, "free_pages", None)
    return None if pages is None else list(map(int, pages))


def host_free_pages(view: Any) -> list[int] | None:
    """The free list of a node's host pool, read under its lock."""
    segment = getattr(view, "_open_segment", None)
    words = getattr(segment, "_words", None)
    if segment is None or words is None:
        return None
    with segment.locked():
        free = int(words[0])
        pages: list[int] = words[2 : 2 + max(0, free)].tolist()
    return pages


def host_pages(view: Any) -> dict[int, list[int]]:
    """Pages by global index of the sequences that this rank keeps in a host pool."""
    return getattr(view, "_pages", {})


def shared_with_other_ranks(view: Any) -> bool:
    """Whether other processes take pages of this host pool, at moments of their own."""
    return getattr(getattr(view, "_open_segment", None), "_lock_fd", None) is not None
