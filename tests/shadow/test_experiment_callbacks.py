"""Callables of the caller: called once, for real, by the legacy body; the handler's calls are answered and compared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from shadow.experiment import Kind, Pure, Verdict
from tests.shadow.experiment_support import Worker, assert_equal, fresh_gates, gated, only

__all__ = ["fresh_gates"]


@dataclass
class Result:
    name: str
    tokens: list[int]


class Listened(Worker):
    """Hands results to its caller."""

    def __init__(self) -> None:
        super().__init__()
        self.on_result: Any = None

    def deliver(self, name: str, tokens: list[int]) -> Any:
        if self.on_result is not None:
            return self.on_result(Result(name, tokens))
        return None


def _gated(handler: Callable[..., Any], legacy: Callable[..., Any] | None = None, **options: Any) -> Any:
    return gated(legacy or finish, handler, base=Listened, callbacks=["on_result"], **options)


def finish(self: Any) -> int:
    for name in ("a", "b"):
        self.count += 1
        self.deliver(name, [self.count, 7])
    return self.count


def _finish_as(*results: tuple[str, list[int]]) -> Callable[[Any], int]:
    def handler(self: Any) -> int:
        for name, tokens in results:
            self.worker.deliver(name, tokens)
        self.worker.count = 2
        return 2

    return handler


def test_a_callback_is_called_once_for_both_paths_with_the_legacys_results() -> None:
    got: list[Result] = []
    worker, gate = _gated(lambda self: finish(self.worker))
    caller = worker.on_result = lambda result: got.append(result)
    assert worker.act() == 2
    assert got == [Result("a", [1, 7]), Result("b", [2, 7])]
    assert worker.on_result is caller
    assert_equal(gate)
    assert gate.verdict() is Verdict.EQUAL


@pytest.mark.parametrize(
    ("results", "path"),
    [
        ([("a", [1, 7]), ("b", [2, 8])], "call 2 gated.<locals>.Gated.on_result[0].tokens[1]"),
        ([("b", [2, 7]), ("a", [1, 7])], "call 1 gated.<locals>.Gated.on_result[0].name"),
        ([("a", [1, 7]), ("b", [2, 7]), ("b", [2, 7])], "call 3"),
        ([("a", [1, 7])], "call 2"),
    ],
    ids=["another value", "another order", "twice", "left out"],
)
def test_a_handler_that_hands_over_something_else_is_found(
    results: list[tuple[str, list[int]]], path: str
) -> None:
    got: list[Result] = []
    worker, gate = _gated(_finish_as(*results))
    worker.on_result = lambda result: got.append(result)
    worker.act()
    assert [result.name for result in got] == ["a", "b"]
    found = gate.divergences[0]
    assert (found.kind, found.path) == (Kind.CALLS, path)


def _keeps(got: list[Any]) -> Callable[[Any], None]:
    return got.append


class _Collector:
    def __init__(self, got: list[Any]) -> None:
        self.got = got

    def take(self, result: Any) -> None:
        self.got.append(result)

    def __call__(self, result: Any) -> None:
        self.got.append(result)


@pytest.mark.parametrize(
    "made",
    [_keeps, lambda got: _Collector(got).take, lambda got: _Collector(got)],
    ids=["a builtin method", "a bound method", "an object"],
)
def test_whatever_kind_of_callable_the_caller_gave_is_called_once(made: Callable[[list[Any]], Any]) -> None:
    got: list[Any] = []
    worker, gate = _gated(lambda self: finish(self.worker))
    worker.on_result = made(got)
    worker.act()
    assert [result.name for result in got] == ["a", "b"]
    assert_equal(gate)


def test_what_a_callback_answers_or_raises_is_what_the_handler_gets() -> None:
    def ask(self: Any) -> list[Any]:
        answers: list[Any] = [self.deliver("a", [])]
        try:
            self.deliver("b", [])
        except KeyError as error:
            answers.append(error.args)
        return answers

    def caller(result: Result) -> int:
        if result.name == "b":
            raise KeyError("full")
        return next(numbers)

    numbers = iter(range(5, 50))
    worker, gate = _gated(lambda self: ask(self.worker), ask)
    worker.on_result = caller
    assert worker.act() == [5, ("full",)]
    assert next(numbers) == 6
    assert_equal(gate)


def test_a_coroutine_that_the_caller_gave_is_awaited_once() -> None:
    got: list[str] = []

    async def caller(result: Result) -> str:
        got.append(result.name)
        return result.name * 2

    async def act(self: Any) -> Any:
        return await self.deliver("a", [])

    async def act_in_handler(self: Any) -> Any:
        return await self.worker.deliver("a", [])

    worker, gate = _gated(act_in_handler, act)
    worker.on_result = caller

    async def call() -> Any:
        return await gate.run_async(worker, "act")

    assert asyncio.run(call()) == "aa"
    assert got == ["a"]
    assert_equal(gate)


def test_a_worker_nobody_listens_to_is_compared_without() -> None:
    worker, gate = _gated(lambda self: finish(self.worker))
    worker.act()
    assert_equal(gate)


def test_a_pure_method_that_calls_back_calls_once_each_time() -> None:
    got: list[Any] = []

    def tell(self: Any) -> None:
        self.on_result(self.count)

    def tell_in_handler(self: Any) -> None:
        self.worker.on_result(self.worker.count)

    worker, gate = _gated(tell_in_handler, tell, effect=Pure())
    worker.on_result = lambda value: got.append(value)
    for _ in range(5):
        worker.act()
    assert got == [0] * 5
    assert_equal(gate, calls=5)


def test_what_the_body_itself_listens_with_from_then_on_stays() -> None:
    def close(self: Any) -> None:
        self.on_result = None

    def close_in_handler(self: Any) -> None:
        self.worker.on_result = None

    worker, gate = _gated(close_in_handler, close)
    worker.on_result = lambda result: None
    worker.act()
    assert worker.on_result is None
    assert_equal(gate)


def test_a_handler_that_stops_listening_is_found() -> None:
    def close_in_handler(self: Any) -> None:
        self.worker.on_result = None

    worker, gate = _gated(close_in_handler, lambda self: None)
    worker.on_result = print
    worker.act()
    assert only(gate).path == "self.on_result"
    assert worker.on_result is print


def test_within_another_compared_call_a_callback_is_still_called_once_and_seen_by_both() -> None:
    def count_down(self: Any, number: int) -> None:
        if number:
            self.act(number - 1)
        self.on_result(number)

    def count_down_wrongly(self: Any, number: int) -> None:
        if number:
            self.worker.act(number - 1)
        self.worker.on_result(number * 10)

    got: list[int] = []
    worker, gate = _gated(count_down_wrongly, count_down)
    caller = worker.on_result = lambda number: got.append(number)
    worker.act(1)
    assert got == [0, 1] and worker.on_result is caller
    summary = gate.summary()
    assert (summary.calls, summary.compared, summary.diverged, summary.faults) == (2, 2, 1, 0)
    assert only(gate).path == "call 2 gated.<locals>.Gated.on_result[0]"
