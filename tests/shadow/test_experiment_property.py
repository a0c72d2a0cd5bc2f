"""Random workers: whatever the handler does, the caller sees the legacy; what differs is found, nothing else is."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import random
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shadow.experiment
from shadow.experiment import Gate, Isolated, Verdict
from tests.shadow.experiment_support import fresh_gates

__all__ = ["fresh_gates"]

log = logging.getLogger("tests.experiment")


@dataclasses.dataclass
class Record:
    values: list[int]
    total: int = 0

    def mark(self, by: int) -> None:
        self.total += by


class Batch:
    """Data with methods: copied whole."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}

    def get(self, key: int) -> Record:
        return self.records.setdefault(key, Record([key]))


class Pool:
    """Not data (it has a thread's event): called once, by the legacy body. Writes down what was done to it."""

    def __init__(self) -> None:
        self.free = list(range(100))
        self.closed = threading.Event()
        self.journal: list[Any] = []
        self.limit = 5

    @property
    def left(self) -> int:
        return len(self.free)

    def take(self, count: int) -> list[int]:
        self.journal.append(("take", count))
        taken, self.free = self.free[:count], self.free[count:]
        return taken

    def give(self, pages: list[int]) -> None:
        self.journal.append(("give", tuple(pages)))
        self.free.extend(pages)

    def fill(self, into: list[int]) -> None:
        self.journal.append(("fill",))
        into.extend(self.take(2))

    def fail(self, what: int) -> None:
        self.journal.append(("fail", what))
        raise KeyError(what, len(self.free))

    def raise_limit(self) -> Pool:
        self.limit += 1
        return self


# Each line is Python in the body of a method (self, arg, k). W is the worker.
LINES = [
    "W.n += {k}",
    "W.n = W.pool.left - {k}",
    "W.items.append({k} + k)",
    "W.items.extend(W.pool.take({k}))",
    "W.items.sort(reverse=True)",
    "W.table[{k}] = W.n",
    "W.table.pop({k}, None)",
    "W.record.values.append(k)",
    "W.record.mark({k})",
    "W.pool.give(W.items[:{k}])",
    "W.pool.fill(W.items)",
    "W.pool.fill(arg)",
    "W.batch.get({k}).mark(k)",
    "W.batch.get({k}).values.append(W.n)",
    "W.n += W.helper({k})",
    "W.n += W.pool.raise_limit().limit",
    "log.info('n is %s', W.n)",
    "arg.append(W.n)",
    "arg.reverse()",
    "W.lazy = {k} if not hasattr(W, 'lazy') else W.lazy + 1",
    "W.n += int(random.random() * 100)",
    "W.n += W.rng.randrange(50)",
    "W.plain.mode = W.n",
    "W.pool.limit = {k}",
    "del W.items[-1:]",
    "if W.n > {k}: return W.items[:2]",
    "if W.n % 3 == {k} % 3: raise ValueError(W.n, k)",
    "for item in W.items: W.n += item",
    "W.items, arg[:1] = arg[1:3], W.items[:1]",
    "W.shared[{k}] = k",
]
LINES += [
    f"try: W.pool.fail({{k}})\n    except KeyError as error: {line}" for line in ("W.n += len(error.args)",)
]

bodies = st.lists(st.tuples(st.sampled_from(LINES), st.integers(0, 4)), min_size=1, max_size=7)


def source(name: str, receiver: str, body: list[tuple[str, int]]) -> str:
    lines = [
        line.replace("{k}", str(k)).replace("W.", f"{receiver}.").replace("(W,", f"({receiver},")
        for line, k in body
    ]
    return f"def {name}(self, arg, k):\n    " + "\n    ".join(lines) + f"\n    return {receiver}.n, arg\n"


def built(legacy: list[tuple[str, int]], moved: list[tuple[str, int]]) -> tuple[type, Gate]:
    """A worker class with one gated method, and its gate, comparing."""
    space: dict[str, Any] = {"log": log, "random": random, "Any": Any}
    exec(source("_legacy_act", "self", legacy), space)
    exec(source("act", "self._worker", moved), space)
    exec("def gated(self, arg, k):\n    if GATE.on:\n        return GATE.run(self, 'act', arg, k)\n"
         "    return self._legacy_act(arg, k)\n", space)  # fmt: skip

    class Handler:
        def __init__(self, worker: Any) -> None:
            self._worker = worker

        @classmethod
        def for_worker(cls, worker: Any) -> Handler:
            return cls(worker)

        act = space["act"]

    class Worker:
        shared: ClassVar[dict[int, int]] = {}

        def __init__(self) -> None:
            self.n, self.items, self.table = 0, [1, 2, 3], {0: 0}
            self.record, self.batch, self.pool = Record([]), Batch(), Pool()
            self.plain = SimpleNamespace(mode=0)
            self.rng = random.Random(3)

        def helper(self, by: int) -> int:
            self.table[by] = self.pool.left
            return by

        _legacy_act = space["_legacy_act"]
        act = space["gated"]

    Worker.shared = {}
    gate = Gate("TEST_PROPERTY", Handler, {"act": Isolated()})
    gate.reload({"TEST_PROPERTY_COMPARE": "1"})
    space["GATE"] = gate
    return Worker, gate


def played(worker: Any, method: Any, calls: list[int]) -> list[Any]:
    """Everything that a caller can see of some calls."""
    seen: list[Any] = []
    random.seed(7)
    for k in calls:
        arg = [k, 9, 8]
        try:
            seen.append(("returned", method(worker, arg, k)))
        except Exception as error:
            seen.append(("raised", type(error), error.args))
        seen.append(list(arg))
    pool = worker.pool
    state = {name: value for name, value in vars(worker).items() if name not in ("pool", "batch", "rng")}
    state["plain"] = vars(worker.plain).copy()
    inside = (
        pool.free,
        pool.journal,
        pool.limit,
        worker.batch.records,
        worker.rng.getstate(),
        type(worker).shared,
    )
    return [*seen, state, inside, random.random()]


calls_made = st.lists(st.integers(0, 5), min_size=1, max_size=4)


@given(bodies, calls_made)
@settings(max_examples=150, derandomize=True, deadline=None)
def test_an_exact_copy_is_compared_and_never_diverges(body: list[tuple[str, int]], calls: list[int]) -> None:
    worker, gate = built(body, body)
    gate.on = False
    expected = played(worker(), worker.act, calls)
    worker.shared = {}
    gate.on = True
    assert played(worker(), worker.act, calls) == expected
    summary = gate.summary()
    assert (summary.faults, summary.diverged) == (0, 0), (gate.faults, gate.divergences)
    assert (summary.compared, summary.skipped) == (len(calls), ()), summary


@given(bodies, bodies, calls_made)
@settings(max_examples=150, derandomize=True, deadline=None)
def test_another_body_is_told_apart_when_it_does_something_else(
    body: list[tuple[str, int]], other: list[tuple[str, int]], calls: list[int]
) -> None:
    worker, gate = built(body, other)
    gate.on = False
    expected = played(worker(), worker.act, calls)
    worker.shared = {}
    alone = built(other, other)[0]
    differs = played(alone(), alone._legacy_act, calls[:1]) != played(
        type(worker())(), worker._legacy_act, calls[:1]
    )
    worker.shared = {}
    gate.on = True
    assert played(worker(), worker.act, calls) == expected
    assert gate.summary().faults == 0, gate.faults
    if differs:
        assert gate.verdict() is not Verdict.EQUAL
        assert gate.divergences or gate.summary().skipped


@given(bodies, st.integers(0, 6), st.tuples(st.sampled_from(LINES), st.integers(0, 4)), calls_made)
@settings(max_examples=200, derandomize=True, deadline=None)
def test_one_changed_line_is_found_on_the_first_call_that_it_matters_to(
    body: list[tuple[str, int]], place: int, line: tuple[str, int], calls: list[int]
) -> None:
    place %= len(body)
    other = [*body[:place], line, *body[place + 1 :]]
    worker, gate = built(body, other)
    gate.on = False
    plain = played(worker(), worker.act, calls[:1])
    worker.shared = {}
    alone = built(other, other)[0]
    differs = played(alone(), alone._legacy_act, calls[:1]) != plain
    gate.on = True
    assert played(worker(), worker.act, calls[:1]) == plain
    assert gate.summary().faults == 0, gate.faults
    if differs:
        assert gate.divergences, (
            source("act", "self", body),
            source("act", "self", other),
            gate.summary().line(),
        )


HARNESS = str(Path(shadow.experiment.__file__).parent)
#: What stands between the caller and the guards: it calls nothing that can fail.
OUTSIDE = {
    "gate": {"run", "_begin", "_is_candidate"},
    "laboratory": {"begin", "end", "fault", "_give_up", "__enter__", "__exit__"},
    "intercept": {"wrapped_plain", "handle", "<lambda>"},
    "tape": {"through", "_begin", "_finish", "_harmless"},
}


class Saboteur:
    """Raises in the n-th function of the harness that is entered."""

    def __init__(self, after: int, error: type[BaseException]) -> None:
        self.left, self.error = after, error

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        is_generator = (
            code.co_flags & inspect.CO_GENERATOR
        )  # also "called" to be closed, which nobody would see
        if event != "call" or is_generator or not code.co_filename.startswith(HARNESS):
            return
        if code.co_name not in OUTSIDE.get(Path(code.co_filename).stem, ()):
            self.left -= 1
            if self.left == 0:
                raise self.error("sabotage")


@given(
    bodies,
    bodies,
    calls_made,
    st.integers(1, 600),
    st.sampled_from([RuntimeError, SystemExit, GeneratorExit]),
)
@settings(max_examples=150, derandomize=True, deadline=None)
# Sabotage may fall into a generator that is being closed, which nobody sees but the interpreter.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_wherever_the_harness_fails_the_caller_sees_the_legacy(
    body: list[tuple[str, int]],
    other: list[tuple[str, int]],
    calls: list[int],
    after: int,
    error: type[BaseException],
) -> None:
    worker, gate = built(body, other)
    gate.on = False
    expected = played(worker(), worker.act, calls)
    worker.shared = {}
    gate.on = True
    saboteur = Saboteur(after, error)
    subject = worker()
    sys.setprofile(saboteur)
    try:
        seen = played(subject, worker.act, calls)
    finally:
        sys.setprofile(None)
    assert seen == expected
