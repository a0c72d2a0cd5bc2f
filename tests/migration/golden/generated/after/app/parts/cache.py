"""Cache of Worker: cut out of app/worker.py."""

from __future__ import annotations

from typing import Any, Protocol

from app.pool import Pool


class GpuKvBackend(Protocol):
    closed: bool

    def allocate_pages(self, uuid: str, n: int) -> list[int]: ...
    def free_pages(self) -> int: ...


class CacheState(Protocol):
    """What the worker keeps."""

    pool: Pool

    @property
    def names(self) -> list[str]: ...

    def note(self, count: int, *names: str, **more: Any) -> int: ...


class CacheManager:
    """Cache of Worker, without state of its own.

    Attributes stay on the worker and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    def __init__(self, *, gpu_kv: GpuKvBackend, state: CacheState) -> None:
        self._gpu_kv = gpu_kv
        self._state = state

    @classmethod
    def for_worker(cls, worker: Any) -> CacheManager:
        """Handles on a worker: the worker itself, or what the recipe says is read from it."""
        from app.backends.pool import PoolBackend

        return cls(gpu_kv=PoolBackend(lambda: worker.pool), state=worker)

    def allocate(self, uuid, n):
        pages = self._gpu_kv.allocate_pages(uuid, n)
        self._state.names.append(uuid)
        return pages, self._gpu_kv.free_pages(), self._state.note(len(pages), uuid)

    def reset(self):
        self._state.pool = Pool()
        self._gpu_kv.closed = not self._gpu_kv.closed
        return self._gpu_kv.free_pages(), self._gpu_kv.closed
