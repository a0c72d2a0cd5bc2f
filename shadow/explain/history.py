"""What became of pages and sequences so far, on either side, from the events of a lockstep run."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

from shadow.observation import Event, Key, Kind, Pages

KEPT = 8
"""Changes remembered of one page: an account of more would not be read."""


@dataclass(frozen=True)
class Change:
    """One change of a page's owner, seen at `step`: given to `owner`, or (None) back in the free list.

    `status`: what the sequence that lost or got it was by then, where that is known.
    """

    step: int
    owner: str | None
    before: str | None
    status: str | None


class SideHistory:
    """One side. Only what its events showed: a page that came and went between two of them was not seen."""

    def __init__(self) -> None:
        self._owners: dict[str, dict[int, str]] = {}
        self._changes: dict[tuple[str, int], deque[Change]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._live: dict[tuple[str, str], tuple[int, ...]] = {}
        self._status: dict[str, str] = {}
        self._steps: dict[str, int] = {}

    def see(self, event: Event) -> None:
        owners: dict[str, dict[int, str]] = {}
        for key, value in event.values.items():
            if key.sequence is None:
                continue
            if isinstance(value, Pages):
                self._pages(event, key, value, owners)
            elif key.kind is Kind.SEQUENCE and key.field == "status":
                self._status[key.sequence] = str(value)
        for pool, now in owners.items():
            self._compare(event.step, pool, now)

    def _pages(self, event: Event, key: Key, value: Pages, owners: dict[str, dict[int, str]]) -> None:
        assert key.sequence is not None
        if key.field.endswith("owned_pages"):
            owners.setdefault(value.pool, {}).update(dict.fromkeys(value.ids, key.sequence))
        elif key.field.endswith("live_pages"):
            self._live[value.pool, key.sequence] = value.ids
            self._steps[key.sequence] = event.step

    def _compare(self, step: int, pool: str, now: dict[int, str]) -> None:
        before = self._owners.get(pool, {})
        for page in sorted(before.keys() | now.keys()):
            was, owner = before.get(page), now.get(page)
            if was != owner:
                status = self._status.get(owner or was or "")
                self._changes[pool, page].append(Change(step, owner, was, status))
        self._owners[pool] = now

    def page_of(self, pool: str, sequence: str, index: int) -> int | None:
        """The page at a place of a sequence's row, as the last decode step read it."""
        pages = self._live.get((pool, sequence), ())
        return pages[index] if index < len(pages) else None

    def owner(self, pool: str, page: int) -> str | None:
        return self._owners.get(pool, {}).get(page)

    def readers(self, pool: str, page: int) -> list[str]:
        """Sequences whose row named the page at their last decode step."""
        return sorted(label for (name, label), pages in self._live.items() if name == pool and page in pages)

    def last_step(self, sequence: str) -> int | None:
        """The last decode step in which attention read the sequence's row."""
        return self._steps.get(sequence)

    def changes(self, pool: str, page: int) -> tuple[Change, ...]:
        return tuple(self._changes.get((pool, page), ()))


class History:
    """Watches a lockstep run: `watch=history`."""

    def __init__(self) -> None:
        self.legacy, self.candidate = SideHistory(), SideHistory()

    def __call__(self, control: Event, candidate: Event) -> None:
        self.legacy.see(control)
        self.candidate.see(candidate)
