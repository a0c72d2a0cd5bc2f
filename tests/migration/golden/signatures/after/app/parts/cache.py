"""Cache of Worker: cut out of app/worker.py."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Protocol


class WorkerView(Protocol):
    """What the section needs from its worker."""

    log: list[object]


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

    def plain(self, a, b=2, *rest, c, d: int = 4, **named):
        self._worker.log.append((a, b, rest, c, d, named))
        return self._worker.log[-1]

    def positional(self, a: int, /, b: int = 1) -> int:
        return a - b

    def long_signature(
        self,
        first: dict[str, list[int]],  # by key
        # the second has a default
        second: "tuple[int, ...]" = (1, 2),
        *,
        a_keyword_with_a_long_name: bool = False,
        another_keyword_with_a_long_name: bool = True,
    ) -> "list[int]":  # sums
        return [sum(first[k]) + sum(second) for k in first if a_keyword_with_a_long_name or another_keyword_with_a_long_name]

    async def later(self, value: int, *, scale: int = 2) -> int:
        self._worker.log.append(value)
        return value * scale

    def each(self, count: int) -> Iterator[int]:
        for index in range(count):
            got = yield index
            self._worker.log.append(got)
        return count

    @contextmanager
    def muted(self, why: str) -> Iterator[str]:
        """Inside, nothing is logged."""
        log, self._worker.log = self._worker.log, []
        try:
            yield why
        except KeyError:
            log.append("swallowed")
        finally:
            self._worker.log = log

    @staticmethod
    def pairs(values, width=2):
        return [values[i : i + width] for i in range(0, len(values), width)]

    def uses_pairs(this, values):
        from app.worker import LIMIT, Worker

        return this.pairs(values, width=LIMIT), Worker.pairs(values)
