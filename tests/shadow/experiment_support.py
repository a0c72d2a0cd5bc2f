"""Pairs of a legacy body and a handler, gated as the codemod gates them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shadow.experiment import Effect, Gate, Isolated, intercept
from shadow.experiment.gate import _gates

PREFIX = "TEST_GATE"


class Pool:
    """Holds something that cannot be copied, so it is called once; writes down its calls."""

    def __init__(self) -> None:
        self.free = list(range(20))
        self.thread = threading.local()
        self.calls: list[str] = []

    @property
    def left(self) -> int:
        return len(self.free)

    def take(self, count: int) -> list[int]:
        self.calls.append(f"take {count}")
        taken, self.free = self.free[:count], self.free[count:]
        return taken

    def give(self, pages: list[int]) -> None:
        self.calls.append(f"give {pages}")
        self.free += pages
        pages.clear()


class Worker:
    """Some state, and the pool."""

    def __init__(self) -> None:
        self.count = 0
        self.items: list[Any] = [1, 2, 3]
        self.table: dict[Any, Any] = {}
        self.pool = Pool()


def gated(
    legacy: Callable[..., Any],
    handler: Callable[..., Any],
    effect: Effect | None = None,
    *,
    env: dict[str, str] | None = None,
    base: type = Worker,
    **options: Any,
) -> tuple[Any, Gate]:
    """A worker whose method `act` has the body `legacy(self, ...)` and the port `handler(self, ...)`.

    The handler finds the worker under `self.worker`. COMPARE is set unless `env` says something else.
    """

    class Handler:
        def __init__(self, worker: Any) -> None:
            self.worker = worker

        @classmethod
        def for_worker(cls, worker: Any) -> Handler:
            return cls(worker)

    class Gated(base):  # type: ignore[misc]
        def act(self, *args: Any, **kwargs: Any) -> Any:
            if gate.on:
                return gate.run(self, "act", *args, **kwargs)
            return self._legacy_act(*args, **kwargs)

    Gated._legacy_act = legacy  # type: ignore[attr-defined]
    Handler.act = handler  # type: ignore[attr-defined]
    gate = Gate(PREFIX, Handler, {"act": effect or Isolated()}, **options)
    gate.reload({f"{PREFIX}_COMPARE": "1"} if env is None else env)
    return Gated(), gate


def assert_equal(gate: Gate, calls: int = 1) -> None:
    """All calls were compared, and nothing was found."""
    summary = gate.summary()
    assert (summary.compared, summary.diverged, summary.faults) == (calls, 0, 0), (
        summary.line(),
        gate.divergences,
        gate.faults,
    )


def only(gate: Gate) -> Any:
    """The one divergence."""
    assert len(gate.divergences) == 1, (gate.divergences, gate.summary().line(), gate.faults)
    return gate.divergences[0]


def add(self: Any, by: int) -> int:
    self.count += by
    return self.count


def add_in_handler(self: Any, by: int) -> int:
    self.worker.count += by
    return self.worker.count


def add_wrongly(self: Any, by: int) -> int:
    self.worker.count += by + 1
    return self.worker.count


@pytest.fixture(autouse=True)
def fresh_gates() -> Iterator[None]:
    """No wrapper and no comparing gate outlives a test."""
    yield
    for gate in list(_gates):
        gate.reload({})
    intercept.remove_all()


@pytest.fixture
def untraced(fresh_gates: None) -> Iterator[None]:
    """No coverage tool in this thread."""
    tracer, in_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]
    yield
    assert sys.gettrace() is None
    sys.settrace(tracer)
    threading.settrace(in_threads)  # type: ignore[arg-type]
