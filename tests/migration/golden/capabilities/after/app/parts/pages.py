"""Pages of Worker: cut out of app/worker.py."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


class Pages(Protocol):
    """What the worker holds."""

    @property
    def pages(self) -> list[Any]: ...


class WorkerHost(Protocol):
    """What the methods need from their Worker, until the recipe names it in narrower handles."""

    @property
    def drain(self) -> Any: ...


@runtime_checkable
class HasDrain(Protocol):
    """A Worker of a subclass that defines `drain`."""

    def drain(self, *args: Any, **kwargs: Any) -> Any: ...


@runtime_checkable
class HasEvict(Protocol):
    """A Worker of a subclass that defines `_evict`."""

    def _evict(self, *args: Any, **kwargs: Any) -> Any: ...


class PagesManager:
    """Pages of Worker, without state of its own.

    Attributes stay on the worker and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    def __init__(self, *, pages: Pages, host: WorkerHost) -> None:
        self._pages = pages
        self._host = host

    @classmethod
    def for_worker(cls, worker: Any) -> PagesManager:
        """Every handle is the worker itself, seen as the part that the methods may touch."""
        return cls(pages=worker, host=worker)

    def close(self):
        if isinstance(self._host, HasDrain):  # a worker with a pool
            self._host.drain(all=True)
        return not isinstance(self._host, HasDrain), len(self._pages.pages)

    def describe(me):
        kind = ("draining" if isinstance(me._host, HasDrain) else "plain")
        return f"{kind}, {'evicts' if isinstance(me._pages, HasEvict) else 'keeps'}", [isinstance(me._pages, HasEvict) for _ in "ab"]
