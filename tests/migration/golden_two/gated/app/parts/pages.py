"""Pages of Worker: cut out of app/worker.py."""

from __future__ import annotations

import json
from math import ceil
from typing import Any, Protocol


class WorkerHost(Protocol):
    """What the methods need from their Worker, until the recipe names it in narrower handles."""

    @property
    def held(self) -> dict[Any, Any]: ...


class PageTable:
    """Pages of Worker, without state of its own.

    Attributes stay on the worker and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    def __init__(self, *, host: WorkerHost) -> None:
        self._host = host

    @classmethod
    def for_worker(cls, worker: Any) -> PageTable:
        """Every handle is the worker itself, seen as the part that the methods may touch."""
        return cls(host=worker)

    def _pages(self, tokens):
        return ceil(tokens / 4)

    def _free(self):
        from app.worker import LIMIT

        return LIMIT - sum(self._host.held.values())

    def _take(self, uuid, tokens):
        pages = self._pages(tokens)
        if pages > self._free():
            raise MemoryError(uuid)
        self._host.held[uuid] = pages
        return pages

    def _dump(self):
        return json.dumps(self._host.held)
