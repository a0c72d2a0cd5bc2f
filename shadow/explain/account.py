"""The account of the first divergence, in the manner of Elle: what each side did with the thing, and the clash."""

from __future__ import annotations

import re

from shadow.diff import Mismatch, Nature
from shadow.explain.history import Change, History, SideHistory
from shadow.observation import Event, Kind
from shadow.tally import Tally

_PAGE_PLACE = re.compile(
    r"^(?P<pool>\w[\w-]*?)\.(?:k|v|owned_pages|live_pages)(?:\.page)?\[(?P<index>\d+)\]$"
)
_PAGE_NAMED = re.compile(r"page (?P<page>\d+) of pool (?P<pool>[\w-]+)")


class Narrator:
    """Watches a run, and remembers how things stood when it first diverged.

    `watch` sees each pair of events, `note` the tally after it (it never asks for an early end).
    """

    def __init__(self) -> None:
        self._history = History()
        self._said: list[str] | None = None
        self.guilty: tuple[str, int] | None = None  # pool and page that the first finding is about

    def watch(self, control: Event, candidate: Event) -> None:
        if self._said is None:
            self._history(control, candidate)

    def note(self, tally: Tally) -> bool:
        first = tally.first
        if first is not None and self._said is None:
            self._said = [_before(first)]
            pages = _pages(first, self._history)
            self.guilty = pages[0] if pages else None
            for pool, page in pages:
                self._said += _of_page(first, pool, page, self._history)
        return False

    def account(self, tally: Tally) -> tuple[str, ...]:
        """Sentences on how the first divergence came about and what it did next; empty where there is none."""
        if tally.first is None or self._said is None:
            return ()
        return (*self._said, *_after(tally.first, tally))


def _before(first: Mismatch) -> str:
    if first.step == 0:
        return "Nothing was equal before it: this is the first decode step."
    return f"Everything that was compared in steps 0 to {first.step - 1} was equal."


def _pages(first: Mismatch, history: History) -> list[tuple[str, int]]:
    """(pool, page) that the finding is about, as the candidate numbers them, then as the legacy does."""
    named = [
        (match["pool"], int(match["page"]))
        for text in (first.candidate, first.legacy)
        for match in _PAGE_NAMED.finditer(text)
    ]
    place = _PAGE_PLACE.match(first.field)
    if place is None or first.sequence is None:
        return list(dict.fromkeys(named))
    pool, index = place["pool"], int(place["index"])
    if first.kind is Kind.PAGE_TABLE:
        pages = [int(text) for text in (first.candidate, first.legacy) if text.isdigit()]
    else:
        sides = (history.candidate, history.legacy)
        pages = [p for side in sides if (p := side.page_of(pool, first.sequence, index)) is not None]
    return list(dict.fromkeys([*named, *((pool, page) for page in pages)]))


def _of_page(first: Mismatch, pool: str, page: int, history: History) -> list[str]:
    ours, theirs = history.legacy.changes(pool, page), history.candidate.changes(pool, page)
    if ours == theirs:
        said = [_story("On both sides page", pool, page, ours)]
    else:
        said = [
            _story("On the legacy side page", pool, page, ours),
            _story("On the candidate side page", pool, page, theirs),
        ]
    clash = _clash(first, pool, page, history.candidate)
    if clash is not None:
        said.append(clash)
    elif ours == theirs and first.kind is Kind.KV:
        said.append(
            f"Both sides agree on who owns page {page} and when it changed hands; only what it holds differs: "
            + (
                "the candidate's holds nothing."
                if first.candidate == "all zero"
                else "it was filled differently."
            )
        )
    return said


def _story(start: str, pool: str, page: int, changes: tuple[Change, ...]) -> str:
    if not changes:
        return f"{start} {page} ({pool}) was never seen with an owner."
    return f"{start} {page} ({pool}) " + ", ".join(map(_change, changes)) + "."


def _change(change: Change) -> str:
    when = f"by step {change.step}"
    if change.owner is None:
        state = f", which was {change.status} then" if change.status else ""
        return f"was freed {when} by {change.before}{state}"
    if change.before is None:
        return f"was given to {change.owner} {when}"
    return f"went from {change.before} to {change.owner} {when}"


def _clash(first: Mismatch, pool: str, page: int, side: SideHistory) -> str | None:
    """Somebody reads the page who does not own it."""
    owner = side.owner(pool, page)
    strangers = [
        label for label in side.readers(pool, page) if label != owner and side.last_step(label) == first.step
    ]
    if not strangers:
        return None
    whose = "is free" if owner is None else f"belongs to {owner}"
    return (
        f"At step {first.step} the candidate's row of {strangers[0]} still names page {page}, which {whose}: "
        "a contradiction."
    )


def _after(first: Mismatch, tally: Tally) -> list[str]:
    """What the divergence reached afterwards, by sort of value, in the order of steps."""
    later = sorted(
        (m for kind, m in tally.first_of_kind.items() if kind is not first.kind), key=lambda m: m.step
    )
    said = []
    if later:
        reached = ", ".join(f"{m.kind.value} (step {m.step}, {m.sequence or 'the run'})" for m in later)
        said.append(f"It then reached: {reached}.")
    elif first.nature is not Nature.VIOLATED:
        said.append("It reached nothing else that was compared.")
    if (
        Kind.TOKENS not in tally.first_of_kind
        and first.kind is not Kind.TOKENS
        and tally.compared[Kind.TOKENS]
    ):
        said.append("No token changed: text equality would not have seen it.")
    return said
