"""Cache of Worker: cut out of app/worker.py."""

from __future__ import annotations

from typing import Any, Protocol


class Pools(Protocol):
    """The pool."""

    @property
    def pool(self) -> list[Any]: ...


class WorkerHost(Protocol):
    """What the methods need from their Worker, until the recipe names it in narrower handles.

    Created on first use, so hasattr() may be False: lazy.
    """

    lazy: Any

    @property
    def size(self) -> int: ...


class CacheManager:
    """Cache of Worker, without state of its own.

    Attributes stay on the worker and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    def __init__(self, *, pools: Pools, host: WorkerHost) -> None:
        self._pools = pools
        self._host = host

    @classmethod
    def for_worker(cls, worker: Any) -> CacheManager:
        """Every handle is the worker itself, seen as the part that the methods may touch."""
        return cls(pools=worker, host=worker)

    def always(self):
        if True and not(True):
            return "never here"
        return len(self._pools.pool), self._host.size  # both are there

    def never(self):
        return (1 if False else 2), f"{'no'}", f'{"no"}'

    def depends(self):
        if not hasattr(self._host, "lazy"):
            self._host.lazy = self._pools.pool
            return "made"
        return self._host.lazy, [True for self_ in "ab"]
