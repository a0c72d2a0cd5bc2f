"""Cache of Worker: cut out of app/worker.py."""

from __future__ import annotations

from typing import Any, Protocol


class WorkerHost(Protocol):
    """What the methods need from their Worker, until the recipe names it in narrower handles."""

    def _Worker__used(self) -> Any: ...

    @property
    def held(self) -> dict[Any, Any]: ...

    @property
    def total(self) -> int: ...


class CacheManager:
    """Cache of Worker, without state of its own.

    Attributes stay on the worker and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    def __init__(self, *, host: WorkerHost) -> None:
        self._host = host

    @classmethod
    def for_worker(cls, worker: Any) -> CacheManager:
        """Every handle is the worker itself, seen as the part that the methods may touch."""
        return cls(host=worker)

    def _free_pages(self):
        return self._host.total - self._host._Worker__used()

    def _Worker__used(self):
        return sum(self._host.held.values())

    def _hold(self, uuid, pages):
        if pages > self._free_pages():
            raise MemoryError(uuid)
        self._host.held[uuid] = pages

    def _release(self, uuid):
        return self._host.held.pop(uuid, 0)
