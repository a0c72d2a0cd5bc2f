"""Pages of Worker: cut out of app/worker.py."""

from __future__ import annotations

import copy
from typing import Any, Protocol, Self

from app.planner import Planner


class GpuKvBackend(Protocol):
    def allocate_pages(self, uuid: str, n: int) -> list[int]: ...
    def release_pages(self, uuid: str) -> None: ...
    def free_pages(self) -> int: ...


class HostKvBackend(Protocol):
    def allocate_pages(self, uuid: str, n: int) -> list[int]: ...


class PageRequest(Protocol):
    """What one request knows of the worker: the worker itself, or a picture of it."""

    evicted: int

    @property
    def order(self) -> list[tuple[str, int]]: ...

    @property
    def watermark(self) -> int: ...


class PageKeeper(Planner):
    """Pages of Worker, without state of its own.

    Attributes stay on what `on` binds and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    _bound_req: PageRequest | None = None

    def __init__(self, *, gpu_kv: GpuKvBackend, host_kv: HostKvBackend) -> None:
        self._gpu_kv = gpu_kv
        self._host_kv = host_kv

    @classmethod
    def for_worker(cls, worker: Any) -> Self:
        """Handles on a worker: the worker itself, or what the recipe says is read from it."""
        from app.backends import DevicePages, HostPages

        return cls(
            gpu_kv=DevicePages(lambda: worker.device),
            host_kv=HostPages(lambda: worker.store),
        ).on(worker)

    def on(self, req: PageRequest) -> Self:
        """This handler for one object: a shallow copy, bound to it."""
        bound = copy.copy(self)
        bound._bound_req = req
        return bound

    @property
    def _req(self) -> PageRequest:
        """What `on` bound."""
        if self._bound_req is None:
            raise RuntimeError("PageKeeper is not bound: call on(req) first")
        return self._bound_req

    def admit(self, uuid: str, wanted: int = 1) -> list[int]:
        """Device pages for a sequence; the oldest ones make room for it."""
        while self._req.order and self._room() < wanted:
            self._evict()
        pages = self._gpu_kv.allocate_pages(uuid, wanted)
        self._req.order.append((uuid, wanted))
        return pages

    def _evict(self) -> None:
        oldest, size = self._req.order.pop(0)
        self._host_kv.allocate_pages(oldest, size)
        self._gpu_kv.release_pages(oldest)
        self._req.evicted += 1  # only ever counts up

    def _room(self) -> int:
        return self._gpu_kv.free_pages() - self._req.watermark
