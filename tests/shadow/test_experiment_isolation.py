"""The caller never sees a difference, and nothing that the handler does reaches the live process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import random
import threading
import time
import traceback
from pathlib import Path
from time import perf_counter as direct_clock
from typing import Any, ClassVar

import pytest

from shadow.experiment import Gate, Isolated, Kind, Nature, Pure, Verdict
from tests.shadow.experiment_support import PREFIX, Pool, Worker, assert_equal, fresh_gates, gated, only

__all__ = ["fresh_gates"]
log = logging.getLogger("tests.experiment")


def nothing(self: Any, *args: Any) -> None:
    return None


# what comes back


def test_the_legacy_result_itself_comes_back() -> None:
    result = [1, 2]
    worker, gate = gated(lambda self: self.items, lambda self: list(self.worker.items))
    worker.items = result
    assert worker.act() is result
    assert_equal(gate)


def test_the_legacy_exception_itself_comes_back_with_its_history() -> None:
    inner, outer = KeyError("inner"), ValueError("outer", 3)

    def fail(self: Any) -> None:
        try:
            raise inner
        except KeyError:
            raise outer from None

    worker, gate = gated(fail, lambda self: fail(self))
    try:
        raise RuntimeError("being handled by the caller")
    except RuntimeError as handled:
        with pytest.raises(ValueError) as caught:
            worker.act()
        assert caught.value is outer
        assert outer.__context__ is inner
        assert outer.__suppress_context__
        assert inner.__context__ is handled
    assert [frame.name for frame in traceback.extract_tb(outer.__traceback__)][-1] == "fail"
    assert_equal(gate)


class Weird(BaseException):
    pass


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        SystemExit(3),
        GeneratorExit(),
        StopIteration(),
        Weird(),
        RecursionError(),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_the_handler_raises_is_an_outcome(error: BaseException) -> None:
    kind, args = type(error), error.args

    def raising(self: Any) -> None:
        raise kind(*args)

    worker, gate = gated(lambda self: 7, raising)
    assert worker.act() == 7
    found = only(gate)
    assert (found.kind, found.path, found.control) == (Kind.EXCEPTION, "outcome", "returned 7")
    assert found.candidate.startswith(f"raised {type(error).__name__}(")


def test_exceptions_are_compared_by_class_and_arguments() -> None:
    def fail(self: Any, error: Exception) -> None:
        raise error

    worker, gate = gated(fail, lambda self, error: fail(self, type(error)(*error.args[:-1], 2)))
    with pytest.raises(KeyError):
        worker.act(KeyError("page", 1))
    found = only(gate)
    assert (found.kind, found.path, found.control, found.candidate) == (
        Kind.EXCEPTION,
        "raised KeyError.args[1]",
        "1",
        "2",
    )


def test_a_handler_that_does_not_end_is_broken_off() -> None:
    def forever(self: Any) -> None:
        while True:
            self.worker.count += 1

    worker, gate = gated(lambda self: 7, forever, env={f"{PREFIX}_COMPARE": "1", f"{PREFIX}_TIMEOUT": "0.2"})
    assert worker.act() == 7
    found = only(gate)
    assert (found.kind, found.candidate) == (Kind.TIMEOUT, "no end after 0.2 s")
    assert worker.count == 0


def test_the_users_own_interrupt_passes() -> None:
    def interrupted(self: Any) -> None:
        raise KeyboardInterrupt

    worker, _ = gated(lambda self: 7, interrupted)
    with pytest.raises(KeyboardInterrupt):
        worker.act()


def test_an_interrupt_of_the_legacy_body_starts_no_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    monkeypatch.setattr("shadow.experiment.trial.run", lambda *args: ran.append(args))

    def interrupted(self: Any) -> None:
        raise KeyboardInterrupt

    worker, gate = gated(interrupted, nothing)
    with pytest.raises(KeyboardInterrupt):
        worker.act()
    assert not ran
    assert gate.summary().skipped == (("the control was ended by KeyboardInterrupt", 1),)


# faults of the harness


@pytest.mark.parametrize(
    "part",
    [
        "snapshot.Snapshot.take",
        "trial.Randomness",
        "trial.World",
        "trial.compare_outcomes",
        "trial.run",
        "tape.Recorder.look",
        "tape.Recorder.begin",
        "tape.Recorder.finish",
        "world.World.compare_state",
        "differ.Differ.compare",
        "laboratory.place_of",
        "ledger.Ledger.compared",
        "views.view_of",
    ],
)
@pytest.mark.parametrize(
    "error", [RuntimeError("broken"), SystemExit(1), Weird()], ids=["plain", "exit", "weird"]
)
def test_whatever_fails_in_the_harness_the_caller_gets_the_legacy(
    part: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(self: Any, pages: list[int]) -> list[int]:
        self.pool.give(pages)
        self.items += self.pool.take(2)
        return self.items

    worker, gate = gated(act, lambda self, pages: act(self.worker, pages))
    module, _, rest = part.partition(".")

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise error

    monkeypatch.setattr(f"shadow.experiment.{module}.{rest}", broken)
    if part == "views.view_of":
        monkeypatch.setattr("shadow.experiment.laboratory.view_of", broken)
    assert worker.act([50]) == [1, 2, 3, 0, 1]
    assert worker.pool.calls == ["give [50]", "take 2"]
    assert gate.verdict() is Verdict.HARNESS_FAILED
    assert type(error).__name__ in gate.faults[0]


def test_a_hook_that_fails_is_a_fault() -> None:
    worker, gate = gated(lambda self: 1, lambda self: 2, on_divergence=lambda divergence: 1 / 0)
    assert worker.act() == 1
    assert only(gate).path == "result"
    assert gate.faults[0].startswith("act: ZeroDivisionError")


class Hostile:
    """Everything that a harness might call is a trap."""

    def __init__(self) -> None:
        self.value = [1]

    def _trap(self, *args: Any) -> Any:
        raise AssertionError("code of the worker's own classes was run")

    __eq__ = __ne__ = __bool__ = __len__ = __iter__ = __repr__ = __str__ = __format__ = _trap
    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = __setstate__ = __sizeof__ = _trap
    __lt__ = __contains__ = __call__ = __getitem__ = __index__ = __enter__ = _trap
    __hash__ = None  # type: ignore[assignment]


@dataclasses.dataclass(eq=False)
class HostileRecord(Hostile):
    value: list[int] = dataclasses.field(default_factory=lambda: [1])
    __repr__ = Hostile._trap


@pytest.mark.parametrize("make", [Hostile, HostileRecord])
def test_no_code_of_the_workers_classes_is_run_by_the_harness(make: Any) -> None:
    def act(self: Any, thing: Any) -> Any:
        self.items.append(thing)
        thing.value.append(self.count)
        return thing

    def act_wrongly(self: Any, thing: Any) -> Any:
        self.worker.items.append(thing)
        thing.value.append(self.worker.count + 1)
        return thing

    worker, gate = gated(act, act_wrongly)
    worker.items, thing = [make()], make()
    assert worker.act(thing) is thing
    assert not gate.faults
    assert {found.path for found in gate.divergences} == {"result.value[1]"}


def test_hostile_objects_that_are_equal_are_equal() -> None:
    worker, gate = gated(lambda self: self.items, lambda self: self.worker.items)
    worker.items = [Hostile(), HostileRecord()]
    worker.act()
    assert_equal(gate)


# effects happen once


def test_writes_of_the_handler_stay_in_its_world() -> None:
    def vandal(self: Any, pages: list[int]) -> None:
        worker = self.worker
        worker.count = 99
        worker.items.clear()
        worker.table["new"] = worker.items
        worker.fresh = 1
        del worker.pool
        pages.append(1)

    worker, gate = gated(nothing, vandal)
    pages, pool = [5], worker.pool
    worker.act(pages)
    assert (worker.count, worker.items, worker.table, worker.pool, pages) == (0, [1, 2, 3], {}, pool, [5])
    assert not hasattr(worker, "fresh")
    natures = {found.path: (found.kind, found.nature) for found in gate.divergences}
    assert natures == {
        "args[0][1]": (Kind.ARGUMENT, Nature.EXTRA),
        "self.count": (Kind.STATE, Nature.VALUE),
        "self.items[0]": (Kind.STATE, Nature.MISSING),
        "self.items[1]": (Kind.STATE, Nature.MISSING),
        "self.items[2]": (Kind.STATE, Nature.MISSING),
        "self.table['new']": (Kind.STATE, Nature.EXTRA),
        "self.pool": (Kind.STATE, Nature.MISSING),
        "self.fresh": (Kind.STATE, Nature.EXTRA),
    }


def test_calls_happen_once_and_are_answered_from_the_record() -> None:
    def act(self: Any) -> Any:
        self.items += self.pool.take(2)
        return self.pool.left

    worker, gate = gated(act, lambda self: act(self.worker))
    assert worker.act() == 18
    assert worker.pool.calls == ["take 2"]
    assert_equal(gate)


@pytest.mark.parametrize(
    ("handler", "path", "control", "candidate"),
    [
        (lambda self: self.worker.pool.take(3), "call 1 Pool.take[0]", "2", "3"),
        (lambda self: self.worker.pool.give([]), "call 1", "Pool.take(2)", "Pool.give([])"),
        (lambda self: None, "call 1", "Pool.take(2)", "(no such call)"),
        (
            lambda self: [self.worker.pool.take(2), self.worker.pool.left],
            "call 2",
            "(no further call)",
            "Pool.left()",
        ),
    ],
    ids=["other arguments", "another call", "dropped", "one more"],
)
def test_calls_that_differ_are_named(handler: Any, path: str, control: str, candidate: str) -> None:
    worker, gate = gated(lambda self: self.pool.take(2), handler)
    worker.act()
    assert worker.pool.calls == ["take 2"]
    found = gate.divergences[-1]
    assert (found.kind, found.path, found.control, found.candidate) == (Kind.CALLS, path, control, candidate)


class Ledger(Pool):
    """Hands out the dict that it keeps its records in."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, list[int]] = {}

    @property
    def held(self) -> dict[str, list[int]]:
        return self._held

    def hold(self, name: str, count: int) -> list[int]:
        pages = self.take(count)
        self._held.setdefault(name, []).extend(pages)
        return pages


@pytest.mark.parametrize(("more", "found"), [(0, None), (1, "call 4 Ledger.hold[1]")])
def test_what_a_property_handed_out_follows_the_calls_that_change_it(more: int, found: str | None) -> None:
    def hold(self: Any, name: str) -> list[int]:
        held = self.pool.held
        first = 1 if name in held else 2
        self.pool.hold(name, first)
        return self.pool.hold(name, len(held[name]) + len(self.pool.held))

    def hold_in_handler(self: Any, name: str) -> list[int]:
        held = self.worker.pool.held
        first = 1 if name in held else 2
        self.worker.pool.hold(name, first)
        return self.worker.pool.hold(name, len(held[name]) + len(self.worker.pool.held) + more)

    worker, gate = gated(hold, hold_in_handler)
    worker.pool = Ledger()
    assert worker.act("a") == [2, 3, 4]
    if found is not None:
        assert only(gate).path == found
        return
    assert worker.act("a") == [6, 7, 8, 9, 10, 11, 12]
    assert_equal(gate, calls=2)


class Book:
    """Data behind methods, as a pool keeps it; its pages are no container that the pool hands out itself."""

    def __init__(self) -> None:
        self.pages: dict[str, list[int]] = {}
        self.generation = 0

    def note(self, name: str, pages: list[int]) -> None:
        self.pages.setdefault(name, []).extend(pages)
        self.generation += 1

    def size(self, name: str) -> int:
        return len(self.pages.get(name, ()))


class Bookkeeper(Pool):
    def __init__(self) -> None:
        super().__init__()
        self._book = Book()

    @property
    def book(self) -> Book:
        return self._book

    def hold(self, name: str, count: int) -> list[int]:
        pages = self.take(count)
        self._book.note(name, pages)
        return pages


@pytest.mark.parametrize(("more", "found"), [(0, None), (1, "call 3 Bookkeeper.hold[1]")])
def test_an_object_that_a_property_handed_out_follows_the_calls_that_change_it(
    more: int, found: str | None
) -> None:
    def hold(self: Any, name: str) -> list[int]:
        book = self.pool.book
        self.pool.hold(name, 2)
        return self.pool.hold(name, book.size(name) + book.generation)

    def hold_in_handler(self: Any, name: str) -> list[int]:
        book = self.worker.pool.book
        self.worker.pool.hold(name, 2)
        return self.worker.pool.hold(name, book.size(name) + book.generation + more)

    worker, gate = gated(hold, hold_in_handler)
    worker.pool = Bookkeeper()
    assert worker.act("a") == [2, 3, 4]
    if found is not None:
        assert only(gate).path == found
        return
    assert len(worker.act("a")) == 10
    assert_equal(gate, calls=2)


STATES = "states"


class Engine:
    """Leads to a pool by an attribute whose name the code has from elsewhere."""

    def __init__(self, pool: Pool) -> None:
        self.thread = threading.local()
        self.states = pool


def test_an_object_reached_by_a_computed_name_is_listened_to_from_the_next_call_on() -> None:
    def hold(self: Any) -> list[int]:
        first = self.pool.take(1)
        pool = getattr(self.engine, STATES)
        return [*first, *pool.take(2), *self.pool.take(1)]

    def hold_in_handler(self: Any) -> list[int]:
        first = self.worker.pool.take(1)
        pool = getattr(self.worker.engine, STATES)
        return [*first, *pool.take(2), *self.worker.pool.take(1)]

    worker, gate = gated(hold, hold_in_handler)
    worker.engine = Engine(Pool())
    for _ in range(6):
        worker.act()
    summary = gate.summary()
    assert summary.compared >= 4 and summary.diverged == 0 and not gate.faults, summary.line()


def test_a_change_of_what_a_property_handed_out_that_the_handler_forgets_is_found() -> None:
    def mark(self: Any) -> None:
        self.pool.held["a"] = [1]
        self.pool.hold("b", 2)

    def mark_in_handler(self: Any) -> None:
        assert not self.worker.pool.held
        self.worker.pool.hold("b", 2)

    worker, gate = gated(mark, mark_in_handler)
    worker.pool = Ledger()
    worker.act()
    assert only(gate).path == "result of call 1 Ledger.held['a']"


def test_a_call_that_changes_its_argument_changes_the_candidates_too() -> None:
    def act(self: Any, pages: list[int]) -> int:
        self.pool.give(pages)
        return len(pages)

    worker, gate = gated(act, lambda self, pages: act(self.worker, pages))
    pages = [7, 8]
    assert worker.act(pages) == 0
    assert pages == []
    assert worker.pool.free[-2:] == [7, 8]
    assert_equal(gate)


def test_an_exception_of_a_call_is_replayed() -> None:
    class Full(Exception):
        pass

    class Refusing(Worker):
        def __init__(self) -> None:
            super().__init__()
            self.pool.take = None  # type: ignore[assignment,method-assign]
            self.gate_keeper = Keeper()

    class Keeper:
        def __init__(self) -> None:
            self.thread = threading.local()
            self.asked = 0

        def ask(self) -> None:
            self.asked += 1
            raise Full("no room", self.asked)

    def act(self: Any) -> Any:
        try:
            self.gate_keeper.ask()
        except Full as full:
            return full.args

    worker, gate = gated(act, lambda self: act(self.worker), base=Refusing)
    assert worker.act() == ("no room", 1)
    assert worker.gate_keeper.asked == 1
    assert_equal(gate)


def test_functions_of_modules_are_called_once(tmp_path: Path) -> None:
    def act(self: Any, path: str) -> Any:
        os.remove(path)
        return time.time()

    worker, gate = gated(act, lambda self, path: act(self.worker, path))
    victim = tmp_path / "victim"
    victim.touch()
    worker.act(str(victim))
    assert not victim.exists()
    assert_equal(gate)


def test_an_effect_that_cannot_be_answered_is_not_repeated(tmp_path: Path) -> None:
    def act(self: Any, path: str) -> None:
        with open(path, "a") as file:
            file.write("once\n")

    worker, gate = gated(act, lambda self, path: act(self.worker, path))
    worker.act(str(tmp_path / "log"))
    assert (tmp_path / "log").read_text() == "once\n"
    ((reason, _),) = gate.summary().skipped
    assert reason.startswith("cannot run twice: ")
    assert reason.endswith("act calls open")
    assert gate.verdict() is Verdict.COVERAGE_SHORT


class Journal:
    """Plain data, with one method that leaves a trace outside."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lines = 0

    def write(self, text: str) -> int:
        with open(self.path, "a") as file:
            file.write(text)
        self.lines += 1
        return self.lines

    def reset(self) -> None:
        self.lines = 0


def test_a_method_of_data_that_leaves_a_trace_outside_is_called_once(tmp_path: Path) -> None:
    class Writing(Worker):
        def __init__(self) -> None:
            super().__init__()
            self.journal = Journal(str(tmp_path / "journal"))

    def act(self: Any) -> int:
        self.journal.reset()
        self.journal.write("a")
        return self.journal.write("b") + self.journal.lines

    worker, gate = gated(act, lambda self: act(self.worker), base=Writing)
    assert worker.act() == 4
    assert (tmp_path / "journal").read_text() == "ab"
    assert_equal(gate)


class Scribe(Journal):
    @classmethod
    def for_worker(cls, worker: Any) -> Scribe:
        return cls(worker.path)


def test_an_object_that_a_class_method_made_leaves_its_trace_once(tmp_path: Path) -> None:
    class Writing(Worker):
        def __init__(self) -> None:
            super().__init__()
            self.path = str(tmp_path / "journal")

    def act(self: Any) -> int:
        return Scribe.for_worker(self).write("a")

    worker, gate = gated(act, lambda self: act(self.worker), base=Writing)
    assert worker.act() == 1
    assert (tmp_path / "journal").read_text() == "a"
    ((reason, _),) = gate.summary().skipped
    assert reason.endswith("write calls open")


def test_log_lines_are_written_once_and_compared(caplog: pytest.LogCaptureFixture) -> None:
    def act(self: Any) -> None:
        log.warning("count is %d", self.count)

    def act_wrongly(self: Any) -> None:
        log.warning("count is %d", self.worker.count + 1)

    worker, gate = gated(act, act_wrongly)
    with caplog.at_level(logging.WARNING, logger="tests.experiment"):
        worker.act()
    assert [record.message for record in caplog.records if record.name == "tests.experiment"] == [
        "count is 0"
    ]
    found = only(gate)
    assert (found.kind, found.path, found.control, found.candidate) == (
        Kind.CALLS,
        "call 1 log[3][0]",
        "0",
        "1",
    )


def test_random_numbers_are_drawn_once_and_counted() -> None:
    worker, gate = gated(lambda self: random.random(), lambda self: random.random())
    random.seed(5)
    got = [worker.act(), random.random()]
    random.seed(5)
    assert got == [random.random(), random.random()]
    assert_equal(gate)
    worker, gate = gated(lambda self: 1, lambda self: [random.random(), 1][1])
    worker.act()
    assert only(gate).path.startswith("random generators")


def test_state_of_the_class_body_is_copied_too() -> None:
    class Shared(Worker):
        registry: ClassVar[dict[str, int]] = {}

    def act(self: Any) -> None:
        self.registry["a"] = 1

    def act_wrongly(self: Any) -> None:
        self.worker.registry["a"] = 2

    worker, gate = gated(act, act_wrongly, base=Shared)
    worker.act()
    assert Shared.registry == {"a": 1}
    assert only(gate).path == "self.registry['a']"


class Wrapper:
    """State that a worker keeps on a class."""

    phase = "idle"
    rows: ClassVar[list[int]] = []


def test_state_on_a_class_that_the_gate_names_is_put_back_and_compared() -> None:
    def act(self: Any) -> Any:
        before = Wrapper.phase
        Wrapper.phase = "decode"
        Wrapper.rows = [*Wrapper.rows, self.count]
        Wrapper.callback = lambda: self
        return before

    def act_wrongly(self: Any) -> Any:
        before = Wrapper.phase
        Wrapper.phase = "decode"
        Wrapper.rows = [*Wrapper.rows, self.worker.count + 1]
        return before

    worker, gate = gated(act, lambda self: act(self.worker), shared=[f"{__name__}.Wrapper"])
    try:
        assert worker.act() == "idle"
        assert_equal(gate)
        callback = Wrapper.callback
        worker, gate = gated(act, act_wrongly, shared=[f"{__name__}.Wrapper"])
        assert worker.act() == "decode"
        assert Wrapper.phase == "decode"
        assert Wrapper.rows == [0, 0]
        assert Wrapper.callback is not callback
        assert Wrapper.callback() is worker
        assert [found.path for found in gate.divergences] == ["Wrapper.rows[1]"], gate.summary().line()
    finally:
        Wrapper.phase, Wrapper.rows = "idle", []


def test_state_on_a_class_that_the_gate_does_not_name_is_never_touched() -> None:
    def act(self: Any) -> None:
        Wrapper.phase = "decode"

    worker, gate = gated(act, lambda self: act(self.worker))
    worker.act()
    Wrapper.phase = "idle"
    ((reason, _),) = gate.summary().skipped
    assert reason.endswith(f"act sets {__name__}.Wrapper.phase")


def test_a_dropped_write_to_a_collaborators_attribute_is_found() -> None:
    def act(self: Any) -> None:
        self.pool.owner = self.count

    worker, gate = gated(act, nothing)
    worker.act()
    found = only(gate)
    assert (found.kind, found.nature, found.path) == (Kind.STATE, Nature.MISSING, "Pool.owner")


# the ways in which compare modes are known to fail


def test_a_memo_of_the_legacy_does_not_hide_the_handlers_mistake() -> None:
    def budget(self: Any) -> int:
        if "budget" not in self.table:
            self.table["budget"] = self.count + 10
        return self.table["budget"]

    def budget_wrongly(self: Any) -> int:
        if "budget" not in self.worker.table:
            self.worker.table["budget"] = self.worker.count + 11
        return self.worker.table["budget"]

    worker, gate = gated(budget, budget_wrongly, Pure())
    assert worker.act() == 10
    assert {found.path for found in gate.divergences} == {"result", "self.table['budget']"}


def test_a_method_wrongly_declared_pure_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    def act(self: Any) -> int:
        self.count += 1
        return self.count

    worker, gate = gated(act, lambda self: act(self.worker), Pure())
    with caplog.at_level(logging.WARNING, logger="shadow.experiment"):
        assert [worker.act() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert_equal(gate, 5)
    said = "act is declared pure, but the legacy body writes self.count: compared as isolated"
    assert caplog.messages == [f"{PREFIX}: {said}"]


def test_a_method_that_turns_out_to_write_later_is_noticed_too() -> None:
    def act(self: Any, at: int) -> int:
        if at >= 3:
            self.count += 1
        return self.count

    worker, gate = gated(act, lambda self, at: act(self.worker, at), Pure())
    for at in range(20):
        worker.act(at)
    assert gate.summary().diverged == 0
    assert any("declared pure" in note for note in gate.notes)


def test_live_counters_are_read_once_for_both() -> None:
    class Ticking(Worker):
        def __init__(self) -> None:
            super().__init__()
            self.clock = Clock()

    class Clock:
        def __init__(self) -> None:
            self.thread = threading.local()
            self.ticks = 0

        @property
        def now(self) -> int:
            self.ticks += 1
            return self.ticks

    worker, gate = gated(
        lambda self: self.clock.now, lambda self: self.worker.clock.now, Pure(), base=Ticking
    )
    assert [worker.act() for _ in range(9)] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert_equal(gate, 9)
    assert not gate.notes


def test_a_method_that_differs_from_itself_is_not_compared_and_not_passed() -> None:
    def act(self: Any) -> float:
        return direct_clock()  # imported by name: no wrapper sees it

    worker, gate = gated(act, lambda self: act(self.worker))
    for _ in range(3):
        worker.act()
    assert gate.summary().skipped == (
        ("isolation not proved: result (value) differs between the legacy body and itself", 3),
    )
    assert gate.verdict() is Verdict.COVERAGE_SHORT


def test_a_difference_that_the_legacy_shows_too_is_no_finding() -> None:
    def act(self: Any, noisy: bool) -> Any:
        return [direct_clock() if noisy else 0.0, self.count]

    def act_wrongly(self: Any, noisy: bool) -> Any:
        return [direct_clock() if noisy else 0.0, self.worker.count + 1]

    worker, gate = gated(act, act_wrongly)
    worker.act(False)
    worker.act(True)
    assert [found.path for found in gate.divergences] == ["result[1]", "result[1]"]
    assert any("result[0] differs between the legacy body and itself" in note for note in gate.notes)


# around the call


def test_gates_within_gates() -> None:
    def inner(self: Any, by: int) -> int:
        self.items.append(self.pool.take(by))
        return self.pool.left

    def outer(self: Any, by: int) -> int:
        return self.act(by) + self.pool.left

    def outer_wrongly(self: Any, by: int) -> int:
        return self.worker.act(by + 1) + self.worker.pool.left

    worker, gate = gated(inner, lambda self, by: inner(self.worker, by))

    class OuterHandler:
        def __init__(self, worker: Any) -> None:
            self.worker = worker

        for_worker = classmethod(lambda cls, worker: cls(worker))
        outer = outer_wrongly

    outer_gate = Gate("TEST_OUTER", OuterHandler, {"outer": Isolated()})
    outer_gate.reload({"TEST_OUTER_COMPARE": "1"})
    type(worker)._legacy_outer = outer
    assert outer_gate.run(worker, "outer", 2) == 36
    assert worker.pool.calls == ["take 2"]
    assert_equal(gate)
    assert only(outer_gate).path == "call 1 Pool.take[0]"


def test_coroutine_methods() -> None:
    async def act(self: Any, by: int) -> int:
        await asyncio.sleep(0)
        self.items += self.pool.take(by)
        return self.pool.left

    async def act_wrongly(self: Any, by: int) -> int:
        return await act(self.worker, by) + 1

    worker, gate = gated(act, act_wrongly)

    async def main() -> int:
        return await gate.run_async(worker, "act", 2)

    assert asyncio.run(main()) == 18
    assert worker.pool.calls == ["take 2"]
    assert only(gate).path == "result"


def test_a_coroutine_that_really_waits_is_not_run_twice() -> None:
    async def act(self: Any, event: Any) -> int:
        await event()
        return 1

    worker, gate = gated(act, lambda self, event: act(self.worker, event))

    async def main() -> int:
        async def waits() -> None:
            await asyncio.sleep(0.001)

        return await gate.run_async(worker, "act", waits)

    assert asyncio.run(main()) == 1
    assert gate.summary().compared == 0
    assert len(gate.summary().skipped) == 1


def test_cancelling_a_coroutine_method_cancels_it() -> None:
    async def act(self: Any) -> None:
        await asyncio.sleep(60)

    worker, gate = gated(act, nothing)

    async def main() -> None:
        task = asyncio.create_task(gate.run_async(worker, "act"))
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(main())
    assert gate.summary().skipped == (("the control was ended by CancelledError", 1),)


def test_many_threads_share_a_gate() -> None:
    def act(self: Any, by: int) -> int:
        return by + sum(self.items)

    worker, gate = gated(act, lambda self, by: act(self.worker, by), Pure())
    results: list[list[int]] = []

    def calls() -> None:
        results.append([worker.act(by) for by in range(50)])

    threads = [threading.Thread(target=calls) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[by + 6 for by in range(50)]] * 4
    assert_equal(gate, 200)


def test_classes_that_take_note_of_their_subclasses_are_left_alone() -> None:
    seen: list[str] = []

    class Registry(Worker):
        def __init_subclass__(cls) -> None:
            seen.append(cls.__name__)

    worker, gate = gated(lambda self: 1, lambda self: 1, base=Registry)
    before = list(seen)
    worker.act()
    assert seen == before
    ((reason, count),) = gate.summary().skipped
    assert (reason.endswith("Registry takes note of its subclasses"), count) == (True, 1)


def test_wrappers_are_taken_off_again() -> None:
    from shadow.experiment import intercept
    from tests.shadow.experiment_support import Pool

    original = vars(Pool)["take"]
    worker, _ = gated(lambda self: self.pool.take(1), lambda self: self.worker.pool.take(1))
    worker.act()
    assert vars(Pool)["take"] is not original
    intercept.remove_all()
    assert vars(Pool)["take"] is original
    assert not hasattr(logging.Logger.handle, "__wrapped__")


# tensors


def test_tensors_are_compared_by_their_bits_and_never_shared() -> None:
    torch = pytest.importorskip("torch")

    def act(self: Any, into: Any) -> Any:
        self.table["k"].add_(1)
        into.zero_()
        return torch.tensor([float("nan"), 0.0])

    def act_wrongly(self: Any, into: Any) -> Any:
        self.worker.table["k"].add_(2)
        into.zero_()
        return torch.tensor([float("nan"), -0.0])

    worker, gate = gated(act, act_wrongly)
    worker.table["k"] = torch.zeros(2, 2)
    into = torch.ones(3)
    torch.manual_seed(0)
    worker.act(into)
    assert worker.table["k"].tolist() == [[1, 1], [1, 1]]
    assert into.tolist() == [0, 0, 0]
    found = {found.path: (found.control, found.candidate) for found in gate.divergences}
    assert found == {"result[1]": ("0.0", "-0.0"), "self.table['k'][0, 0]": ("1.0", "2.0")}


def test_a_drift_of_containers_enums_and_scalars_is_no_difference() -> None:
    torch = pytest.importorskip("torch")

    def act(self: Any) -> Any:
        return {"pages": [1, 2], "free": torch.tensor(3), "ids": {1, 2}}

    @dataclasses.dataclass(frozen=True)
    class Plan:
        pages: tuple[int, ...]
        free: int
        ids: frozenset[int]

    worker, gate = gated(act, lambda self: Plan((1, 2), 3, frozenset({1, 2})))
    worker.act()
    assert_equal(gate)


def test_a_method_with_a_default_that_can_change_is_not_run_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is made once, with the function: a second run would append to what the first one left."""
    calls: list[str] = []

    class Worker:
        def __init__(self) -> None:
            self.n = 1

        def _log(self, seen: list[int] = []) -> list[int]:  # noqa: B006
            seen.append(self.n)
            return list(seen)

        def act(self) -> list[int]:
            return gate.run(self, "act") if gate.on else self._legacy_act()

        def _legacy_act(self) -> list[int]:
            calls.append("legacy")
            return self._log()

    class Handler:
        def __init__(self, worker: Worker) -> None:
            self._host = worker

        @classmethod
        def for_worker(cls, worker: Worker) -> Handler:
            return cls(worker)

        def act(self) -> list[int]:
            return self._host._log()

    monkeypatch.setenv("TEST_DEFAULT_COMPARE", "1")
    gate = Gate("TEST_DEFAULT", Handler, {"act": Isolated()})
    worker = Worker()
    assert [worker.act(), worker.act()] == [[1], [1, 1]]
    assert gate.summary().methods[0][1].compared == 0
