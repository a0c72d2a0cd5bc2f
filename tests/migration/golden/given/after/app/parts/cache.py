"""Cache of Worker: cut out of app/worker.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from app.protocols import HostKvBackend
    from app.worker import AsyncHandle


class GpuKvBackend(Protocol):
    # What a device backend must do.
    closed: bool

    def allocate_pages(self, uuid: str, n: int, *, handle: AsyncHandle | None = None) -> Sequence[int]: ...
    def release_pages(self, uuid: str) -> None: ...
    def free_pages(self) -> int: ...


class CacheState(Protocol):
    @property
    def name(self) -> str: ...

    pool: Any


class CacheManager:
    """Cache of Worker, without state of its own.

    Attributes stay on the worker and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    def __init__(
        self,
        *,
        gpu_kv: GpuKvBackend,
        host_kv: Callable[[], HostKvBackend],
        state: CacheState,
    ) -> None:
        self._gpu_kv = gpu_kv
        self._read_host_kv = host_kv
        self._state = state

    @classmethod
    def for_worker(cls, worker: Any) -> CacheManager:
        """Handles on a worker: the worker itself, or what the recipe says is read from it."""
        from app.backends import PoolBackend

        return cls(gpu_kv=PoolBackend(lambda: worker.pool), host_kv=lambda: worker.host, state=worker)

    @property
    def _host_kv(self) -> HostKvBackend:
        """Read at each use, for another object may have taken its place."""
        return self._read_host_kv()

    def allocate(self, uuid, n):
        from app.worker import AsyncHandle

        pages = self._gpu_kv.allocate_pages(uuid, n, handle=AsyncHandle())
        return pages, self._gpu_kv.free_pages()

    def swap(self, uuid):
        from app.worker import Pool

        self._gpu_kv.release_pages(uuid)
        self._state.pool = Pool()
        self._gpu_kv.closed = not self._gpu_kv.closed
        return self._gpu_kv.free_pages(), self._gpu_kv.closed, hasattr(self._gpu_kv, "closed")

    def load(self, uuid, *pages, **options):
        first = self._host_kv.load(uuid, 1, 2)
        return first, self._host_kv.load(uuid, *pages, **options), self._host_kv.pages, self._state.name
