"""Counts of the branches that compared calls have taken."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from shadow.experiment import Flags, MethodCount, branches
from tests.shadow import experiment_branches as cases
from tests.shadow.experiment_branches import CASES, PREFIX, early, gate_of, plain
from tests.shadow.experiment_support import fresh_gates, untraced

__all__ = ["fresh_gates", "untraced"]
pytestmark = pytest.mark.usefixtures("untraced")
ROOT = Path(__file__).resolve().parents[2]
before_monitoring = pytest.mark.skipif(sys.version_info >= (3, 12), reason="nothing is traced")


def count_of(gate: Any) -> MethodCount:
    return dict(gate.summary().methods)["act"]


def seen(gate: Any) -> int:
    return count_of(gate).branches_seen


@pytest.mark.parametrize("legacy", CASES, ids=lambda legacy: legacy.__name__)
def test_each_branch_is_counted_by_the_call_that_takes_it(legacy: Callable[..., Any]) -> None:
    assert cases.newly_taken(legacy) == cases.expected(legacy)


def test_a_comprehension_has_its_condition() -> None:
    worker, gate = gate_of(cases.comprehended)
    worker.act([1])
    (left,) = count_of(gate).unseen
    worker.act([0])
    assert count_of(gate).unseen == ()
    assert cases.relative(cases.comprehended, left).startswith("4")


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_other_interpreters_count_the_same(version: str) -> None:
    path = shutil.which(f"python{version}")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYENV_VERSION": version}
    if not path or subprocess.run([path, "-c", ""], env=env, capture_output=True, check=False).returncode:
        pytest.skip(f"no Python {version}")
    run = subprocess.run(
        [path, "-m", cases.__name__], capture_output=True, text=True, env=env, cwd=ROOT, check=False
    )
    assert run.returncode == 0, run.stderr
    for name, (found, wanted) in json.loads(run.stdout).items():
        assert found == wanted, name


def test_labels_name_file_and_lines() -> None:
    worker, gate = gate_of(plain)
    worker.act(9)
    first = plain.__code__.co_firstlineno
    assert count_of(gate).unseen == (f"experiment_branches.py:{first + 1} -> {first + 4}",)


def test_the_line_and_the_report_have_the_counts(tmp_path: Path) -> None:
    report = tmp_path / "report"
    worker, gate = gate_of(plain, **{f"{PREFIX}_REPORT": str(report)})
    worker.act(1)
    line = gate.close().line()
    assert "1 compared, 0 diverged; branches compared: 1 of 2; not compared" in line
    (method,) = json.loads(report.read_text())["methods"].values()
    assert (method["branches_seen"], method["branches"], len(method["unseen"])) == (1, 2, 1)


def test_off_counts_nothing_and_says_nothing() -> None:
    worker, gate = gate_of(plain, **{f"{PREFIX}_BRANCHES": "0"})
    worker.act(1)
    count = count_of(gate)
    assert (count.compared, count.branches_seen, count.branches, count.unseen) == (1, 0, 0, ())
    assert "branches" not in gate.summary().line()
    assert gate._ledger.coverage == {}
    assert not Flags.from_env("X", {}).branches


def test_a_call_that_is_not_sampled_counts_nothing() -> None:
    worker, gate = gate_of(plain)
    worker.act(1)
    gate.configure(Flags(compare=True, rate=1e-12, branches=True))
    worker.act(9)
    assert (count_of(gate).calls, count_of(gate).compared, seen(gate)) == (2, 1, 1)
    gate.configure(Flags(compare=True, branches=True))
    worker.act(9)
    assert seen(gate) == 2


def test_a_call_within_a_compared_one_that_is_not_sampled_itself_counts_nothing() -> None:
    worker, gate = gate_of(plain)
    gate.configure(Flags(compare=True, rate=1e-12, branches=True))
    assert watched(plain, lambda: worker.act(9)).arcs == {-1}


def test_a_call_that_came_out_as_not_compared_counts_nothing() -> None:
    def hands_out(self: Any, n: int) -> Any:
        if n:
            return iter(())
        return 1

    worker, gate = gate_of(hands_out)
    worker.act(1)
    worker.act(0)
    assert (count_of(gate).compared, seen(gate)) == (0, 0)
    assert gate._ledger.coverage["act"].seen == set()


def test_what_the_handler_runs_is_not_counted() -> None:
    worker, gate = gate_of(plain)
    gate._handler.act = lambda self, n: plain(self.worker, 9)
    worker.act(1)
    assert seen(gate) == 1


def test_reload_forgets_and_configure_keeps() -> None:
    worker, gate = gate_of(plain)
    worker.act(1)
    gate.configure(Flags(compare=True, branches=True))
    worker.act(1)
    assert seen(gate) == 1
    gate.reload({f"{PREFIX}_COMPARE": "1", f"{PREFIX}_BRANCHES": "1"})
    worker.act(9)
    assert (seen(gate), count_of(gate).branches) == (1, 2)


def test_classes_with_bodies_of_their_own_are_added_up() -> None:
    worker, gate = gate_of(plain)
    worker.act(1)

    class Other(type(worker)):  # type: ignore[misc]
        _legacy_act = early

    gate._handler.act = lambda self, n: self.worker._legacy_act(n)
    gate.run(Other(), "act", 1)
    assert (seen(gate), count_of(gate).branches) == (2, 4)


def test_threads_count_their_own_calls_only() -> None:
    inside, go_on = threading.Event(), threading.Event()

    class Lock(threading.local):
        def wait(self) -> None:
            inside.set()
            go_on.wait(10)

    def waits(self: Any, n: int) -> int:
        if n:
            self.lock.wait()
            if n > 1:
                return 2
        return 1

    worker, gate = gate_of(waits)
    worker.lock = Lock()
    thread = threading.Thread(target=worker.act, args=(1,))
    thread.start()
    assert inside.wait(10)
    worker._legacy_act(0)  # while the other is compared, not through the gate
    go_on.set()
    thread.join()
    first = set(count_of(gate).unseen)
    worker.act(2)
    worker.act(0)
    assert (len(first), seen(gate)) == (2, 4)


def test_coroutines_count_their_own_steps_only() -> None:
    async def steps(self: Any, n: int) -> int:
        if n:
            await asyncio.sleep(0)
            if n > 1:
                return 2
        return 1

    worker, gate = gate_of(steps)

    async def both() -> None:
        task = asyncio.ensure_future(gate.run_async(worker, "act", 1))
        await asyncio.sleep(0)
        assert sys.gettrace() is None
        await worker._legacy_act(2)
        await worker._legacy_act(0)
        await task

    asyncio.run(both())
    assert (count_of(gate).compared, seen(gate)) == (1, 2), (gate.faults, count_of(gate))


def test_an_exception_leaves_no_trace() -> None:
    worker, gate = gate_of(cases.ended)
    with pytest.raises(ValueError, match="negative"):
        worker.act(-1)
    assert sys.gettrace() is None
    assert branches.WATCH.get() is None
    assert not branches._monitor._armed
    assert seen(gate) == 2


def watched(body: Callable[..., Any], run: Callable[[], Any]) -> branches.Watch:
    """What `run` takes of the branches of `body`."""
    watch = branches.Coverage().watch(body)
    assert isinstance(watch, branches.Watch)
    token = branches.WATCH.set(watch)
    with watch:
        run()
    branches.WATCH.reset(token)
    watch.end()
    return watch


def test_what_the_gate_itself_runs_is_not_counted() -> None:
    def aside() -> None:
        with branches.Unwatched():
            assert branches.WATCH.get() is None
            plain(None, 1)
        plain(None, 9)

    assert len(watched(plain, aside).arcs - {-1}) == 1


@before_monitoring
def test_nothing_stays_on_a_frame_that_waits() -> None:
    def steps(n: int) -> Iterator[int]:
        if n:
            yield n

    made = steps(1)
    assert len(watched(steps, lambda: next(made)).arcs - {-1}) == 1
    frame = made.gi_frame  # type: ignore[attr-defined]
    assert (frame.f_trace, frame.f_trace_lines, frame.f_trace_opcodes) == (None, True, False)


def test_a_decorated_body_has_its_own_branches() -> None:
    @functools.wraps(plain)
    def around(self: Any, n: int) -> int:
        return plain(self, n)

    assert len(watched(around, lambda: around(None, 1)).coverage.labels) == 2


def test_a_body_that_was_made_twice_has_its_branches_once() -> None:
    coverage = branches.Coverage()
    for body in (plain, FunctionType(plain.__code__.replace(), {})):
        watch = coverage.watch(body)
        assert isinstance(watch, branches.Watch)
        watch.end()
    assert (len(coverage.labels), len(coverage.codes)) == (2, 2)


def test_what_the_compiler_adds_to_a_with_statement_is_no_branch() -> None:
    def locked(lock: Any) -> int:
        with lock:
            return 1

    assert branches.branches_of(locked.__code__).labels == {}


@before_monitoring
def test_an_active_tracer_is_left_alone() -> None:
    events: list[str] = []

    def tracer(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code is plain.__code__:
            events.append(event)
            return tracer
        return None

    worker, gate = gate_of(plain)
    sys.settrace(tracer)
    try:
        worker.act(9)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(None)
    count = count_of(gate)
    assert events[:3] == ["call", "line", "line"]
    assert (count.compared, count.branches_seen, count.branches) == (1, 0, 2)
    assert dict(count.uncounted) == {"another tracer is active": 1}


@before_monitoring
def test_a_tracer_that_the_body_sets_stays() -> None:
    def tracer(frame: Any, event: str, argument: Any) -> None:
        return None

    watch = branches.Coverage().watch(None) or branches.Watch(branches.Coverage())
    assert isinstance(watch, branches.Watch)
    with watch:
        sys.settrace(tracer)
    assert sys.gettrace() is tracer
    sys.settrace(None)


@before_monitoring
def test_tracing_ends_after_so_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "TRACED", 2)
    worker, gate = gate_of(plain)
    for n in (1, 1, 9):
        worker.act(n)
    count = count_of(gate)
    assert (count.compared, count.branches_seen, sum(count.uncounted.values())) == (3, 1, 1)


def test_nothing_is_watched_once_all_is_known() -> None:
    worker, gate = gate_of(plain)
    worker.act(1)
    worker.act(9)
    assert gate._ledger.coverage["act"].watch(None) is None


def test_branches_that_cannot_be_read_cost_no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(code: Any) -> Any:
        raise KeyError(code)

    monkeypatch.setattr(branches, "branches_of", unreadable)
    worker, gate = gate_of(plain)
    worker.act(1)
    count = count_of(gate)
    assert (count.compared, count.faults) == (1, 0)
    assert dict(count.uncounted) == {"its branches cannot be read: KeyError": 1}
