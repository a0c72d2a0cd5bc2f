"""Methods whose handler says beforehand what they come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from shadow.experiment import Gate, Kind, Planned, Verdict
from tests.shadow.experiment_support import PREFIX, fresh_gates

__all__ = ["fresh_gates"]


class Worker:
    def __init__(self) -> None:
        self.pages = [1, 2, 3]
        self.calls = 0

    def _legacy_take(self, n: int) -> int:
        if n > len(self.pages):
            self.pages.clear()  # stops half-way
            raise ValueError(f"{n} of 3")
        self.calls += 1
        del self.pages[:n]
        return n

    def take(self, n: int) -> int:
        result: int = GATE.run(self, "take", n)
        return result


GATE: Gate


@dataclass(frozen=True)
class Foreseen:
    worker: Worker
    value: int
    expected: tuple[tuple[int, ...], int]

    def found(self) -> tuple[tuple[int, ...], int]:
        return tuple(self.worker.pages), self.worker.calls


def foresee(worker: Worker, n: int) -> Foreseen:
    if n > len(worker.pages):
        raise ValueError(f"{n} of 3")
    return Foreseen(worker, n, (tuple(worker.pages[n:]), worker.calls + 1))


def made(say: Callable[[Worker, int], Foreseen] | None, **env: str) -> tuple[Worker, Gate]:
    class Handler:
        @classmethod
        def for_worker(cls, worker: Worker) -> Any:
            raise AssertionError("not in compare mode")

    if say is not None:

        def asked(cls: type, worker: Worker, name: str, args: Any, kwargs: Any) -> Foreseen:
            assert name == "take"
            return say(worker, *args, **kwargs)

        Handler.foresee = classmethod(asked)  # type: ignore[attr-defined]
    global GATE
    GATE = Gate(PREFIX, Handler, {"take": Planned()})
    GATE.reload({f"{PREFIX}_COMPARE": "1", **env})
    return Worker(), GATE


def test_what_was_foreseen_is_compared_with_what_the_control_left() -> None:
    worker, gate = made(foresee)
    assert worker.take(2) == 2 and worker.pages == [3] and worker.calls == 1
    summary = gate.summary()
    assert (gate.verdict(), summary.calls, dict(summary.methods)["take"].compared) == (Verdict.EQUAL, 1, 1)
    assert dict(summary.methods)["take"].values == 3  # the result, a page, a counter


@pytest.mark.parametrize(
    ("wrong", "kind", "path"),
    [
        (lambda seen: Foreseen(seen.worker, seen.value + 1, seen.expected), Kind.VALUE, "result"),
        (lambda seen: Foreseen(seen.worker, seen.value, (seen.expected[0], 7)), Kind.STATE, "worker[1]"),
        (lambda seen: Foreseen(seen.worker, seen.value, ((9,), 1)), Kind.STATE, "worker[0][0]"),
    ],
)
def test_a_plan_that_comes_to_something_else_is_named(
    wrong: Callable[[Foreseen], Foreseen], kind: Kind, path: str
) -> None:
    worker, gate = made(lambda worker, n: wrong(foresee(worker, n)))
    assert worker.take(2) == 2 and worker.pages == [3]
    (found,) = gate.divergences
    assert (found.kind, found.path) == (kind, path)


def test_of_a_control_that_raises_only_that_is_compared() -> None:
    worker, gate = made(foresee)
    with pytest.raises(ValueError, match="4 of 3"):
        worker.take(4)
    assert worker.pages == [] and gate.verdict() is Verdict.EQUAL
    worker, gate = made(lambda worker, n: Foreseen(worker, n, ((), 1)))
    with pytest.raises(ValueError, match="4 of 3"):
        worker.take(4)
    assert [found.kind for found in gate.divergences] == [Kind.EXCEPTION]


def test_a_plan_that_raises_where_the_control_does_not_is_a_divergence() -> None:
    def fails(worker: Worker, n: int) -> Foreseen:
        raise KeyError(n)

    worker, gate = made(fails)
    assert worker.take(1) == 1
    assert [found.kind for found in gate.divergences] == [Kind.EXCEPTION]


def test_a_handler_that_cannot_foresee_is_a_fault_of_the_harness() -> None:
    worker, gate = made(None)
    assert worker.take(1) == 1
    assert gate.verdict() is Verdict.HARNESS_FAILED and "foresee is missing" in gate.faults[0]


def test_a_plan_that_takes_too_long_is_broken_off() -> None:
    def slow(worker: Worker, n: int) -> Foreseen:
        while True:
            pass

    worker, gate = made(slow, **{f"{PREFIX}_TIMEOUT": "0.2"})
    assert worker.take(1) == 1
    assert [found.kind for found in gate.divergences] == [Kind.TIMEOUT]
