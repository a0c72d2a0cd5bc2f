"""Cache of Worker: cut out of app/worker.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from app.worker import Engine


class HostView(Protocol):
    """The host pool; another one takes its place when it grows.

    Passed on whole, so it must be the object itself: grow:48, grow:49, others:69.
    """

    note: Any
    pages: Any

    def free_pages(self, *args: Any, **kwargs: Any) -> Any: ...

    def take(self, *args: Any, **kwargs: Any) -> Any: ...


class Pool(Protocol):
    """The device pool, made on first use.

    Passed on whole, so it must be the object itself: lazily:77, lazily:78, lazily:79.
    """

    def append(self, *args: Any, **kwargs: Any) -> Any: ...


class Rebalancer(Protocol):
    """Who holds sequences back."""

    @property
    def hold(self) -> Any: ...


class Parallel(Protocol):
    """Other ranks, where there are any."""

    @property
    def available(self) -> Any: ...


class CacheState(Protocol):
    """What is left.

    Created on first use, so hasattr() may be False: _Worker__pool.
    """

    _Worker__pool: Any
    shortcut: Any

    @property
    def engine(self) -> Engine: ...

    @property
    def limit(self) -> Any: ...


class CacheManager:
    """Cache of Worker, without state of its own.

    Attributes stay on the worker and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    def __init__(
        self,
        *,
        view: Callable[[], HostView],
        pool: Callable[[], Pool],
        rebalancer: Callable[[], Rebalancer],
        parallel: Parallel,
        state: CacheState,
    ) -> None:
        self._read_view = view
        self._read_pool = pool
        self._read_rebalancer = rebalancer
        self._parallel = parallel
        self._state = state

    @classmethod
    def for_worker(cls, worker: Any) -> CacheManager:
        """Handles on a worker: the worker itself, or what the recipe says is read from it."""
        from app.backends import Ranks

        return cls(
            view=lambda: worker.engine.view,
            pool=lambda: worker._Worker__pool,
            rebalancer=lambda: worker.rebalancer,
            parallel=Ranks(lambda: worker),
            state=worker,
        )

    @property
    def _view(self) -> HostView:
        """Read at each use, for another object may have taken its place."""
        return self._read_view()

    @property
    def _pool(self) -> Pool:
        """Read at each use, for another object may have taken its place."""
        return self._read_pool()

    @property
    def _rebalancer(self) -> Rebalancer:
        """Read at each use, for another object may have taken its place."""
        return self._read_rebalancer()

    def free(self):
        return self._view.free_pages()

    def grow(self, pages):
        from app.worker import View

        before = self._view.free_pages()
        self._state.engine.view = View(pages)  # another object from here on
        self._state.shortcut = self._view
        return before, self._view.free_pages(), self._view is self._view

    def spend(self, count):
        self._view.pages += 1
        self._view.note = f"{self._view.pages} of {count:{self._view.pages}}"
        took = self._view.take(
            count,
            pin=hasattr(self._view, "note"),
        )
        del self._view.note
        return took, hasattr(self._view, "note"), getattr(self._state.engine, "view", None) is not None

    def over_lines(self):
        return (
            self._state.engine
            .view.free_pages()
        )

    def others(self, workers):
        count = lambda self: self.engine.view.pages
        def inner(self=self._view):
            return self.pages
        return [count(worker) for worker in workers], inner(), [w.engine.view.pages for w in workers]

    def lazily(self):
        if not hasattr(self._state, "_Worker__pool"):
            self._state._Worker__pool = [1]
        self._pool.append(2)
        size = len(self._pool)
        self._state._Worker__pool = self._pool + [3]
        total = sum(self._pool)
        del self._state._Worker__pool
        return size, total, hasattr(self._state, "_Worker__pool"), hasattr(self._state, "engine")

    def hold(this, *names):
        if this._parallel.available and names:
            return this._rebalancer.hold(*names), list(map(this._rebalancer.hold, names))
        return this._rebalancer.hold("alone")if this._parallel.available else "no ranks", this._state.limit

    def until(self):
        limit = self._state.limit
        return limit, getattr(self._state, "limit", 0), hasattr(self._state, "limit"), self._view.pages
