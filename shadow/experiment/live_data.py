"""Data that a property handed out and that later calls of its owner change: the candidate's copies follow."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shadow.experiment.copies import Ref
from shadow.experiment.differ import Differ
from shadow.experiment.snapshot import Snapshot
from shadow.experiment.storage import stored

_CONTAINERS = (dict, list, set, deque)


@dataclass(frozen=True)
class Change:
    """What a container, or an object, held before a call and after it; `originals` are as for a `Transplant`."""

    where: str
    live: Any
    before: Any
    after: Any
    originals: dict[int, Any]


class LiveData:
    """Looks at what was handed out around each call: what the control changes itself, the candidate changes, too."""

    def __init__(self, fresh: Callable[[], Snapshot]) -> None:
        self._fresh = fresh
        self._live: dict[int, tuple[Any, str]] = {}
        self._before: list[Any] = []

    def follow(self, value: Any, where: str) -> None:
        if type(value) in _CONTAINERS or stored(value):
            self._live.setdefault(id(value), (value, where))

    def call_begins(self) -> None:
        if self._live:
            fresh = self._fresh()
            self._before = [fresh.take(value) for value, _ in self._live.values()]

    def call_ended(self) -> list[Change]:
        """What the call has changed."""
        if not self._live:
            return []
        fresh = self._fresh()
        now = [fresh.take(value) for value, _ in self._live.values()]
        originals = {id(copy): real for real, copy in fresh.pairs()}
        changed = []
        for (live, where), before, after in zip(self._live.values(), self._before, now, strict=True):
            differ = Differ(real=lambda value: value.real if type(value) is Ref else value)
            if not differ.compare(before, after, ""):
                changed.append(Change(where, live, before, after, originals))
        return changed
