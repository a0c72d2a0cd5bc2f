"""Since when a phase is in the tree: the commit that brought it and that no later one took back. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from migration.burndown.history import Commit
from migration.status.phase import Phase

_DAY = 86_400


@dataclass(frozen=True)
class Since:
    """The commit that brought something, `days` ago."""

    commit: str
    time: int
    subject: str
    days: int


def since(commit: Commit, now: float) -> Since:
    return Since(commit.id, commit.time, commit.subject, max(0, int((now - commit.time) // _DAY)))


def first_of_each(states: Iterable[tuple[Commit, Phase | None]]) -> dict[Phase, Commit]:
    """Per phase the commit that brought what is there at the end; `states` are oldest first, None where unclear.

    Gates have a commit only where a tree with gates was seen: a one-step cut never had any.
    """
    found: dict[Phase, Commit] = {}
    for commit, phase in states:
        if phase is None:
            continue
        for known in list(found):
            if known > phase:
                del found[known]
        for brought in (Phase.PORTED, Phase.CLEANED):
            if phase >= brought:
                found.setdefault(brought, commit)
        if phase is Phase.GATED:
            found.setdefault(Phase.GATED, commit)
    return found


def start_of_run(states: Iterable[tuple[Commit, bool]]) -> Commit | None:
    """The first commit of the unbroken run of True at the end, None where the end is not True."""
    found: Commit | None = None
    for commit, there in states:
        found = (found or commit) if there else None
    return found
