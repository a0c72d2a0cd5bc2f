"""Plans of Worker: cut out of app/worker.py."""

from __future__ import annotations

from math import floor
from typing import Any, Protocol


class WorkerHost(Protocol):
    """What the methods need from their Worker, until the recipe names it in narrower handles."""

    def _free(self) -> Any: ...

    def _pages(self, tokens: Any) -> Any: ...

    @property
    def log(self) -> list[Any]: ...

    @property
    def share(self) -> Any: ...


class Planner:
    """Plans of Worker, without state of its own.

    Attributes stay on the worker and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    def __init__(self, *, host: WorkerHost) -> None:
        self._host = host

    @classmethod
    def for_worker(cls, worker: Any) -> Planner:
        """Every handle is the worker itself, seen as the part that the methods may touch."""
        return cls(host=worker)

    def _plan(self, wanted):
        """Those of `wanted` (uuid, tokens) that fit."""
        left = self._host._free()
        plan = []
        for uuid, tokens in wanted:
            pages = self._host._pages(tokens)
            if pages <= left:
                plan.append(uuid)
                left -= pages
        self._host.log.append((len(plan), self._host.share))
        return plan

    def share(self):
        from app.worker import LIMIT

        return floor(100 * self._host._free() / LIMIT)

    def _waves(self, wanted):
        while wanted:
            now = self._plan(wanted) or [wanted[0][0]]
            yield now
            wanted = [(uuid, tokens) for uuid, tokens in wanted if uuid not in now]
