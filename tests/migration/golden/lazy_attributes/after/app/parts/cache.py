"""Cache of Worker: cut out of app/worker.py."""

from __future__ import annotations

from typing import Any, Protocol


class WorkerView(Protocol):
    """What the section needs from its worker.

    Created on first use, so hasattr() may be False: _counter, _group, marked, seen.
    """

    _counter: int
    _group: Any
    marked: Any
    model: Any
    seen: list

    @property
    def preferred(self) -> Any: ...


class CacheManager:
    """Cache of Worker, without state of its own.

    Attributes stay on the worker and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    def __init__(self, *, worker: WorkerView) -> None:
        self._worker = worker

    @classmethod
    def for_worker(cls, worker: Any) -> CacheManager:
        """Every handle is the worker itself, seen as the part that the methods may touch."""
        return cls(worker=worker)

    def counter(self):
        if not hasattr(self._worker, "_counter"):
            self._worker._counter = 0
        self._worker._counter += 1
        return self._worker._counter

    def group(self):
        if hasattr(self._worker, "_group") and self._worker._group:
            return self._worker._group
        self._worker._group = getattr(self._worker, "preferred", None) or "default"
        return self._worker._group

    def has_model(self):
        return hasattr(self._worker, "model"), getattr(self._worker, "model", None) is not None

    def drop(self):
        if hasattr(self._worker, "model"):
            del self._worker.model
        if hasattr(self._worker, "_group"):
            delattr(self._worker, "_group")

    def mark(self, value):
        setattr(self._worker, "marked", value)
        self._worker.seen: list = []
        self._worker.seen.append(getattr(self._worker, "marked"))
        return self._worker.seen
