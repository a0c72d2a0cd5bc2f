"""Cache of Worker: cut out of app/worker.py."""

from __future__ import annotations

import sys
from typing import Any, AsyncIterator, Protocol


class WorkerHost(Protocol):
    """What the methods need from their Worker, until the recipe names it in narrower handles.

    Passed on whole, so it must be the worker itself: closes:42, hands_over:52, hands_over:53,
    shows_itself:56, computed:59, computed:60, __enter__:88.
    """

    SIZE: Any
    _Worker__secret: int
    name: Any

    def _Worker__hidden(self) -> Any: ...

    def cached(self, *, scale: Any = ...) -> Any: ...

    def class_default(self, size: Any = ..., *, log: Any = ...) -> Any: ...

    @property
    def size(self) -> Any: ...


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

    def close(self):
        from app.worker import Worker

        return super(Worker, self._host).close() + "!"

    def closes(self):
        from app.worker import Worker

        return [super(Worker, self._host).close() for _ in "ab"]

    def mangled(self, other):
        self._host._Worker__secret += other._Worker__secret
        return self._host._Worker__hidden(), self._host._Worker__secret

    def _Worker__hidden(self):
        return self._host._Worker__secret * 2

    def hands_over(self, others):
        others.append(self._host)
        return self._host if others else None

    def shows_itself(self):
        from app.worker import Worker

        return f"{self._host is not None}", isinstance(self._host, Worker), [self._host for _ in "ab"][0] is self._host

    def computed(self, key):
        setattr(self._host, "_" + key, 1)
        return getattr(self._host, key, None), hasattr(self._host, "_" + key)

    def size(self):
        """How many; also settable."""
        return self._host.SIZE

    # in bytes
    def size_setter(self, value):
        self._host.SIZE = value

    def cached(self, *, scale=2):
        return [self._host.name] * scale

    def make(cls, name="made"):
        from app.worker import Worker

        made = super(Worker, cls._host).make(name)
        return made, cls._host.SIZE

    def conditional(self):
        return self._host.name

    def dunder_len(self):
        return len(self._host.name)

    def dunder_enter(self):
        return self._host

    def dunder_exit(self, *exc):
        self._host.name += "."

    def typed(self, value):
        return value * 2

    def class_default(self, size, *, log):
        log.append(size)
        return log

    def calls_defaults(self):
        return self._host.class_default(), self._host.class_default(3), self._host.cached(scale=1), self._host.size

    def rebound(self):
        from app.worker import count_up
        import app.worker as worker_module

        before = worker_module.COUNT
        count_up()
        return worker_module.COUNT - before, [worker_module.COUNT for _ in "a"][0] - worker_module.COUNT

    def maybe(self):
        import app.worker as worker_module

        return worker_module.MAYBE if sys.argv[1:] else self._host.name

    def relative(self):
        from app.settings import PAGES as pages
        from app import settings
        return pages == settings.PAGES

    def starred(self):
        import app.worker as worker_module

        return worker_module.PAGES

    async def streams(self, count) -> AsyncIterator[int]:
        for index in range(count):
            got = yield index
            if got:
                self._host.name += str(got)
