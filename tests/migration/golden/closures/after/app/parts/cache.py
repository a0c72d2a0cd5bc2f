"""Cache of Worker: cut out of app/worker.py."""

from __future__ import annotations

from typing import Any, Protocol


class WorkerView(Protocol):
    """What the section needs from its worker."""

    table: Any

    @property
    def items(self) -> list[Any]: ...

    @property
    def weights(self) -> dict[Any, Any]: ...


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

    def ordered(self):
        return sorted(self._worker.items, key=lambda item: self._worker.weights[item])

    def install(self):
        from app.worker import Sink

        seen = []

        def callback(item, scale=self._worker.items[0]):
            nonlocal seen
            seen = [*seen, item * scale, *self._worker.table]
            return [self.weight(i) for i in seen if self._worker.weights]

        Sink.callback = callback
        return callback

    def weight(self, item):
        return self._worker.weights.get(item, 0)

    def own_self(self):
        class Probe:
            limit = self._worker.items[0]

            def __init__(self, value):
                super().__init__()
                self.value = value
                self.__hidden = value

            def get(self):
                return self.value, self.__hidden, __class__.__name__

        def inner(self, other=self._worker.items[1]):
            return self + other

        return Probe(1).get(), Probe.limit, inner(1), (lambda self: self * 2)(4)

    def restore(self, bad):
        saved, self._worker.table = self._worker.table, ["temporary"]
        try:
            if bad:
                raise ValueError(self._worker.table)
        except ValueError as error:
            return str(error)
        else:
            return "fine"
        finally:
            self._worker.table = saved
