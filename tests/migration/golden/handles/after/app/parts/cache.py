"""Cache of Worker: cut out of app/worker.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Protocol

if TYPE_CHECKING:
    from app.worker import Pool


class PoolState(Protocol):
    """The pool, which is replaced when it must grow."""

    grown: int
    pool: Optional[Pool]

    @property
    def PAGE_SIZE(self) -> int: ...


class TableState(Protocol):
    """Who holds which pages.

    Created on first use, so hasattr() may be False: last, rest.
    """

    last: Any
    rest: Any

    @property
    def table(self) -> Dict[str, List[int]]: ...


class WorkerView(Protocol):
    """Whatever else the section needs."""

    @property
    def rank(self) -> int: ...

    def rank_of(self, page: int) -> int: ...

    def report(self, what: str) -> str: ...


class CacheManager:
    """Cache of Worker, without state of its own.

    Attributes stay on the worker and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    def __init__(self, *, pools: PoolState, tables: TableState, worker: WorkerView) -> None:
        self._pools = pools
        self._tables = tables
        self._worker = worker

    @classmethod
    def for_worker(cls, worker: Any) -> CacheManager:
        """Every handle is the worker itself, seen as the part that the methods may touch."""
        return cls(pools=worker, tables=worker, worker=worker)

    def ensure(self, pages: int) -> Pool:
        """A pool of at least `pages` pages; another object after it grew."""
        from app.worker import Pool

        if self._pools.pool is None or self._pools.pool.free() < pages:
            self._pools.pool = Pool(self.round_up(pages))
            self._pools.grown += 1
            self._worker.report("grown")
        return self._pools.pool

    def round_up(self, pages: int) -> int:
        size = self._pools.PAGE_SIZE // 16
        return (pages + size - 1) // size * size

    def reserve(self, key: str, pages: int) -> List[int]:
        pool = self.ensure(pages)
        # The pool may be a new object by now: read it again.
        assert pool is self._pools.pool
        self._tables.table[key], (self._tables.last, *self._tables.rest) = list(range(pages)), (key, pages)
        return sorted(self._tables.table[key], key=self._worker.rank_of)

    def rank_of(self, page: int) -> int:
        return -page if self._worker.rank else page
