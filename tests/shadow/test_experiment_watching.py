"""Hooks that only watch a worker do not stand in the way of a gate that compares it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shadow.experiment import Gate, Isolated, Verdict, watching
from shadow.observe.hooks import Hooks

SEEN: list[Any] = []


class Pool:
    """Not copied: the gate records its calls."""

    def __init__(self) -> None:
        self.free = [0, 1, 2, 3]

    def take(self) -> int:
        return self.free.pop()


class Handler:
    def __init__(self, worker: Any) -> None:
        self._w = worker

    @classmethod
    def for_worker(cls, worker: Any) -> Handler:
        return cls(worker)

    def step(self, by: int) -> int:
        self._w.page = self._w.pool.take()
        return self._w.pick(by) + self._w.page


class Worker:
    def __init__(self) -> None:
        self.page = 0
        self.total = 0
        self.pool = Pool()

    def step(self, by: int) -> int:
        return GATE.run(self, "step", by)

    def _legacy_step(self, by: int) -> int:
        self.page = self.pool.take()
        return self.pick(by) + self.page

    def pick(self, by: int) -> int:
        self.total += by
        return self.total


def replacement(by: int) -> int:
    SEEN.append(by)
    return by


GATE = Gate("WATCHING_TEST", Handler, {"step": Isolated()}, taped=["pool"])


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    GATE.reload({"WATCHING_TEST_COMPARE": "1"})
    SEEN.clear()
    yield made
    GATE.reload({})


def noting(original: Callable[..., Any]) -> Callable[..., Any]:
    """Looks at everything around, as an observer does, and changes nothing of the worker."""

    def hook(*args: Any, **kwargs: Any) -> Any:
        SEEN.append(("before", args, len(SEEN)))
        value = original(*args, **kwargs)
        SEEN.append(value)
        return value

    return hook


def compared(worker: Worker, calls: int = 3) -> None:
    for by in range(1, calls + 1):
        worker.step(by)
    summary = GATE.summary()
    assert (summary.compared, summary.diverged, GATE.faults) == (calls, 0, ()), summary.line()
    assert GATE.verdict() is Verdict.EQUAL


def test_a_watched_method_of_the_worker_is_compared_and_watched_once_a_call(worker: Worker) -> None:
    hooks = Hooks()
    hooks.wrap(worker, "pick", noting)
    compared(worker)
    assert SEEN[1::2] == [1, 3, 6], "the control's calls, and no candidate's"
    hooks.undo()
    assert "pick" not in vars(worker)


def test_a_watched_method_of_what_is_not_copied_is_answered_from_the_record(worker: Worker) -> None:
    hooks = Hooks()
    hooks.wrap(worker.pool, "take", noting)
    compared(worker)
    assert SEEN[1::2] == [3, 2, 1]
    hooks.undo()


def test_a_watched_method_of_a_class_is_looked_into(worker: Worker) -> None:
    hooks = Hooks()
    hooks.wrap(Worker, "pick", noting)
    compared(worker)
    assert SEEN[1::2] == [1, 3, 6]
    hooks.undo()


def test_what_a_hook_itself_calls_is_not_taken_for_the_workers_call(worker: Worker) -> None:
    def looking(original: Callable[..., Any]) -> Callable[..., Any]:
        def hook(by: int) -> int:
            worker.pool.free.append(worker.pool.take())  # a call that the handler does not make
            return int(original(by))

        return hook

    hooks = Hooks()
    hooks.wrap(worker, "pick", looking)
    compared(worker)
    hooks.undo()


def test_watching_hooks_may_be_put_around_each_other(worker: Worker) -> None:
    hooks = Hooks()
    hooks.wrap(worker, "pick", noting)
    hooks.wrap(worker, "pick", noting)
    compared(worker)
    assert SEEN[2::4] == [1, 3, 6] and len(SEEN) == 12
    hooks.undo()


def test_a_replaced_method_is_no_watching_hook_and_is_said_not_to_be_compared(worker: Worker) -> None:
    vars(worker)["pick"] = replacement
    worker.step(1)
    summary = GATE.summary()
    assert summary.compared == 0 and GATE.verdict() is Verdict.COVERAGE_SHORT
    assert "replacement" in summary.line()


def test_a_watching_hook_around_a_replaced_method_hides_nothing(worker: Worker) -> None:
    vars(worker)["pick"] = replacement
    hooks = Hooks()
    hooks.wrap(worker, "pick", noting)
    worker.step(1)
    assert SEEN[1] == 1, "the replacement is what is handed on to"
    assert GATE.summary().compared == 0
    hooks.undo()


def test_a_divergence_is_found_under_a_watching_hook(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "step", lambda self, by: self._w.pool.take() + self._w.pick(by))
    hooks = Hooks()
    hooks.wrap(worker, "pick", noting)
    worker.step(1)
    assert GATE.verdict() is Verdict.DIVERGED
    assert GATE.divergences[0].path == "self.page"
    hooks.undo()


def test_a_hook_has_the_signature_of_what_it_is_put_around(worker: Worker) -> None:
    hook = watching(worker, "pick", noting)
    assert inspect.signature(hook) == inspect.signature(worker.pick)
