"""Where records are replayed: what the coordinating process needs of it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from shadow.record.one import Replayed, Work, replay_one
from shadow.record.source_tree import import_from


class EngineError(RuntimeError):
    """There is no such engine here; one line that says why and what to do."""


@dataclass(frozen=True)
class Done:
    path: Path
    replayed: Replayed


@dataclass(frozen=True)
class Lost:
    """The worker that had the record is gone."""

    path: Path
    reason: str


class Engine(Protocol):
    """`slots`: how many records it is to have at a time."""

    slots: int

    def submit(self, path: Path) -> None:
        """Hands over a record; never waits."""

    def results(self) -> Sequence[Done | Lost]:
        """What has come of records that were handed over; waits for at least one. Once for each of them."""

    def close(self) -> None:
        """Ends all workers at once, whatever they are doing."""


_imported = functools.cache(import_from)


def replay_in_worker(work: Work, path: Path) -> Replayed:
    """In a worker, which imports a tree once for all records."""
    return replay_one(path, work, _imported)
