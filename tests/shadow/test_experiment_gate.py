"""Routing, flags, counts, verdicts and reports of a gate."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shadow.experiment import FlagError, Flags, Gate, Isolated, Kind, Nature, Pure, Skip, Verdict
from tests.shadow.experiment_support import (
    PREFIX,
    Pool,
    Worker,
    add,
    add_in_handler,
    add_wrongly,
    assert_equal,
    fresh_gates,
    gated,
    only,
)

__all__ = ["fresh_gates"]
ROOT = Path(__file__).resolve().parents[2]


# routing


def test_off_runs_the_legacy_body_alone() -> None:
    worker, gate = gated(add, add_wrongly, env={})
    assert worker.act(2) == 2
    assert not gate.on
    assert gate.summary().calls == 0


def test_off_the_callable_is_the_legacy_body_itself_and_on_it_is_the_gate() -> None:
    worker, gate = gated(add, add_wrongly, env={})
    found = gate.callable(worker, "act")
    assert found.__func__ is type(worker)._legacy_act and found.__self__ is worker  # type: ignore[attr-defined]
    gate.configure(Flags(native=True))
    assert gate.callable(worker, "act")(2) == 3
    gate.configure(Flags(compare=True))
    assert gate.callable(worker, "act")(by=2) == 5 and gate.divergences


def test_on_is_a_plain_attribute() -> None:
    _, gate = gated(add, add_in_handler, env={})
    assert vars(gate)["on"] is False


def test_native_runs_the_handler_alone() -> None:
    worker, _ = gated(add, add_wrongly, env={f"{PREFIX}_NATIVE": "1"})
    assert worker.act(2) == 3
    assert worker.count == 3


def test_compare_serves_the_legacy_result_and_names_the_field() -> None:
    worker, gate = gated(add, add_wrongly)
    assert worker.act(2) == 2
    assert worker.count == 2
    first, second = gate.divergences
    assert (first.kind, first.nature, first.path, first.control, first.candidate) == (
        Kind.VALUE,
        Nature.VALUE,
        "result",
        "2",
        "3",
    )
    assert (second.kind, second.path, second.method, second.call) == (Kind.STATE, "self.count", "act", 1)


def test_configure_switches_at_run_time() -> None:
    worker, gate = gated(add, add_wrongly, env={})
    worker.act(1)
    gate.configure(Flags(compare=True))
    worker.act(1)
    gate.configure(Flags(native=True))
    assert worker.act(1) == 4
    assert gate.summary().compared == 1


# flags


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"X_NATIVE": "1", "X_COMPARE": "1"}, "X_NATIVE and X_COMPARE are both set"),
        (
            {"X_NATIVE": "maybe"},
            "X_NATIVE='maybe' is neither on (1, on, true, yes) nor off (0, off, false, no)",
        ),
        (
            {"X_COMPARE": "2"},
            "X_COMPARE='2' is neither on (1, on, true, yes), off (0, off, false, no) nor a share",
        ),
        ({"X_COMPARE": "ten%"}, "X_COMPARE='ten%' is neither on"),
        ({"X_BUDGET": "-1"}, "X_BUDGET='-1' is not a positive number (a fraction of the control's time"),
        ({"X_TIMEOUT": "nan"}, "X_TIMEOUT='nan' is not a positive number (seconds)"),
    ],
)
def test_a_wrong_flag_is_refused_with_what_is_right(env: dict[str, str], said: str) -> None:
    with pytest.raises(FlagError) as caught:
        Flags.from_env("X", env)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(("text", "rate"), [("1", 1.0), ("on", 1.0), ("0.25", 0.25), ("5%", 0.05)])
def test_compare_takes_a_share(text: str, rate: float) -> None:
    flags = Flags.from_env("X", {"X_COMPARE": text})
    assert (flags.compare, flags.rate) == (True, rate)


def test_flags_of_two_gates_can_be_compared_across_ranks() -> None:
    _, one = gated(add, add_in_handler)
    _, same = gated(add, add_in_handler, env={f"{PREFIX}_COMPARE": "1", f"{PREFIX}_REPORT": "/tmp/rank1"})
    _, other = gated(add, add_in_handler, env={f"{PREFIX}_COMPARE": "0.5"})
    assert one.settings() == same.settings()
    assert one.settings() != other.settings()


# forms of methods


class Forms:
    """Call sites as the codemod writes them."""

    gate: Gate

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def keywords(self, a: int, /, b: int = 2, *rest: int, c: int, **named: int) -> Any:
        if self.gate.on:
            return self.gate.run(self, "keywords", a, b, *rest, c=c, **named)
        return self._legacy_keywords(a, b, *rest, c=c, **named)

    def _legacy_keywords(self, a: int, /, b: int = 2, *rest: int, c: int, **named: int) -> Any:
        self.seen.append((a, b, rest, c, sorted(named)))
        return self.seen[-1]

    @staticmethod
    def pairs(values: list[int], width: int = 2) -> Any:
        if Forms.gate.on:
            return Forms.gate.run(Forms, "pairs", values, width)
        return Forms._legacy_pairs(values, width)

    @staticmethod
    def _legacy_pairs(values: list[int], width: int = 2) -> Any:
        values.sort()
        return [values[i : i + width] for i in range(0, len(values), width)]

    @property
    def size(self) -> int:
        if self.gate.on:
            return self.gate.run(self, "size")
        return self._legacy_size()

    def _legacy_size(self) -> int:
        return len(self.seen)

    @classmethod
    def made(cls, value: int) -> Any:
        if cls.gate.on:
            return cls.gate.run(cls, "made", value)
        return cls._legacy_made(value)

    @classmethod
    def _legacy_made(cls, value: int) -> Any:
        return [cls.__name__, value]

    def each(self, count: int) -> Any:
        if self.gate.on:
            return (yield from self.gate.run(self, "each", count))
        return (yield from self._legacy_each(count))

    def _legacy_each(self, count: int) -> Any:
        for index in range(count):
            self.seen.append((yield index))
        return "end"

    @contextlib.contextmanager
    def muted(self, why: str) -> Iterator[str]:
        with self.gate.run(self, "muted", why) if self.gate.on else self._legacy_muted(why) as value:
            yield value

    @contextlib.contextmanager
    def _legacy_muted(self, why: str) -> Iterator[str]:
        self.seen.append("in")
        try:
            yield why
        finally:
            self.seen.append("out")

    def stream(self, count: int) -> Any:
        if self.gate.on:
            return self.gate.run(self, "stream", count)
        return self._legacy_stream(count)

    async def _legacy_stream(self, count: int) -> Any:
        for index in range(count):
            yield index

    async def later(self, value: int, *, scale: int = 2) -> int:
        if self.gate.on:
            return await self.gate.run_async(self, "later", value, scale=scale)
        return await self._legacy_later(value, scale=scale)

    async def _legacy_later(self, value: int, *, scale: int = 2) -> int:
        self.seen.append(value)
        return value * scale


class FormsHandler:
    def __init__(self, worker: Any) -> None:
        self._worker = worker

    @classmethod
    def for_worker(cls, worker: Any) -> FormsHandler:
        return cls(worker)

    def keywords(self, a: int, /, b: int = 2, *rest: int, c: int, **named: int) -> Any:
        self._worker.seen.append((a, b, rest, c, sorted(named)))
        return self._worker.seen[-1]

    @staticmethod
    def pairs(values: list[int], width: int = 2) -> Any:
        values.sort()
        return [values[i : i + width] for i in range(0, len(values), width)]

    def size(self) -> int:
        return len(self._worker.seen)

    def made(self, value: int) -> Any:
        return [self._worker.__name__, value]

    def each(self, count: int) -> Any:
        for index in range(count):
            self._worker.seen.append((yield index))
        return "end"

    @contextlib.contextmanager
    def muted(self, why: str) -> Iterator[str]:
        self._worker.seen.append("in")
        try:
            yield why
        finally:
            self._worker.seen.append("out")

    async def stream(self, count: int) -> Any:
        for index in range(count):
            yield index

    async def later(self, value: int, *, scale: int = 2) -> int:
        self._worker.seen.append(value)
        return value * scale


@pytest.fixture(params=["OFF", "NATIVE", "COMPARE"])
def forms(request: pytest.FixtureRequest) -> Gate:
    effects = {
        "keywords": Isolated(),
        "pairs": Isolated(),
        "size": Pure(),
        "made": Pure(),
        "each": Isolated(),
    }
    Forms.gate = Gate("FORMS", FormsHandler, effects)
    Forms.gate.reload({f"FORMS_{request.param}": "1"})
    return Forms.gate


def test_every_form_of_method_behaves_the_same_in_every_mode(forms: Gate) -> None:
    worker = Forms()
    assert worker.keywords(1, c=3, name=4, owner=5, self_=6) == (1, 2, (), 3, ["name", "owner", "self_"])
    assert worker.keywords(1, 2, 9, 8, c=3) == (1, 2, (9, 8), 3, [])
    values = [3, 1, 2]
    assert Forms.pairs(values) == [[1, 2], [3]]
    assert values == [1, 2, 3]
    assert worker.size == 2
    assert Forms.made(4) == ["Forms", 4]
    generator = worker.each(2)
    assert (next(generator), generator.send("sent")) == (0, 1)
    with pytest.raises(StopIteration) as end:
        generator.send("more")
    assert end.value.value == "end"
    with worker.muted("reason") as value:
        assert value == "reason"
        worker.seen.append("inside")
    assert worker.seen[2:] == ["sent", "more", "in", "inside", "out"]

    async def main() -> list[Any]:
        return [await worker.later(3, scale=5), [value async for value in worker.stream(2)]]

    assert asyncio.run(main()) == [15, [0, 1]]
    assert forms.summary().diverged == forms.summary().faults == 0


def test_what_cannot_be_compared_is_counted_with_its_reason() -> None:
    Forms.gate = Gate("FORMS", FormsHandler, {"keywords": Isolated(), "made": Pure(), "each": Isolated()})
    Forms.gate.reload({"FORMS_COMPARE": "1"})
    worker = Forms()
    assert (list(worker.each(1)), list(worker.each(1))) == ([0], [0])
    Forms.made(4)
    assert worker.size == 2
    assert dict(Forms.gate.summary().skipped) == {
        "hands out a generator": 2,
        "a class method: the state of a class cannot be copied": 1,
        "no effect is declared": 1,
    }


# verdicts


def test_verdict_0_when_all_was_compared_and_equal() -> None:
    worker, gate = gated(add, add_in_handler)
    worker.act(1)
    worker.act(2)
    assert_equal(gate, 2)
    assert gate.verdict() is Verdict.EQUAL == 0


def test_verdict_1_after_a_divergence() -> None:
    worker, gate = gated(add, add_wrongly)
    worker.act(1)
    assert gate.verdict() is Verdict.DIVERGED == 1


def test_verdict_2_after_a_harness_fault_even_beside_a_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, gate = gated(add, add_wrongly)
    worker.act(1)
    from shadow.experiment import trial

    monkeypatch.setattr(trial, "compare_outcomes", lambda *_: 1 / 0)
    assert worker.act(1) == 2
    assert gate.verdict() is Verdict.HARNESS_FAILED == 2
    assert len(gate.faults) == 1
    assert gate.faults[0].startswith("act: ZeroDivisionError at test_experiment_gate.py:")


def test_verdict_3_when_nothing_was_compared() -> None:
    _, gate = gated(add, add_in_handler)
    assert gate.verdict() is Verdict.COVERAGE_SHORT == 3


def test_verdict_3_when_a_required_method_was_never_compared() -> None:
    worker, gate = gated(add, add_in_handler)
    worker.act(1)
    assert gate.verdict(required=["act"]) is Verdict.EQUAL
    assert gate.verdict(required=["act", "load"]) is Verdict.COVERAGE_SHORT


def test_a_declared_skip_is_no_gap() -> None:
    effects = {"keywords": Isolated(), "each": Skip("hands out a generator that writes")}
    Forms.gate = Gate("FORMS", FormsHandler, effects)
    Forms.gate.reload({"FORMS_COMPARE": "1"})
    worker = Forms()
    worker.keywords(1, c=2)
    list(worker.each(1))
    assert Forms.gate.verdict() is Verdict.EQUAL
    assert Forms.gate.summary().skipped == (("hands out a generator that writes", 1),)


# reports


def test_the_report_has_one_json_value_a_line(tmp_path: Path) -> None:
    report = tmp_path / "kv.jsonl"
    worker, gate = gated(add, add_wrongly, env={f"{PREFIX}_COMPARE": "1", f"{PREFIX}_REPORT": str(report)})
    worker.act(1)
    gate.close()
    records = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    assert [record["record"] for record in records] == ["divergence", "divergence", "summary"]
    assert {"gate": PREFIX, "method": "act", "call": 1, "kind": "value", "path": "result", "control": "1",
            "candidate": "2"}.items() <= records[0].items()  # fmt: skip
    assert records[-1]["verdict"] == 1
    assert not gate.on


def test_a_report_that_cannot_be_written_is_a_fault_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    report = str(tmp_path / "file" / "kv.jsonl")
    worker, gate = gated(add, add_wrongly, env={f"{PREFIX}_COMPARE": "1", f"{PREFIX}_REPORT": report})
    assert (worker.act(1), worker.act(1)) == (1, 2)
    assert len(gate.faults) == 1
    assert f"cannot write {report}: File exists" in gate.faults[0]


def test_examples_are_bounded_and_counts_exact(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def spread(self: Any, at: int) -> dict[int, int]:
        return {at: 1}

    def spread_wrongly(self: Any, at: int) -> dict[int, int]:
        return {at: 2}

    report = tmp_path / "report.jsonl"
    env = {f"{PREFIX}_COMPARE": "1", f"{PREFIX}_REPORT": str(report)}
    worker, gate = gated(spread, spread_wrongly, Pure(), env=env)
    with caplog.at_level(logging.WARNING, logger="shadow.experiment"):
        for at in range(40):
            worker.act(at)
    assert gate.summary().diverged == 40
    assert len(gate.divergences) == 5
    assert len(report.read_text(encoding="utf-8").splitlines()) == 5
    assert len(caplog.messages) == 1
    assert caplog.messages[0] == f"{PREFIX} act (call 1): value: result[0]: legacy 1, handler 2"


def test_at_exit_one_line_says_what_was_compared(tmp_path: Path) -> None:
    program = f"""
        from shadow.experiment import Gate, Isolated
        from tests.shadow.test_experiment_gate import add, add_in_handler
        from tests.shadow.experiment_support import gated
        worker, gate = gated(add, add_in_handler, env={{"{PREFIX}_COMPARE": "1"}})
        worker.act(1)
        print("done")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "done\n"
    assert done.stderr == (
        f"shadow {PREFIX}: 1 calls, 1 compared, 0 diverged; not compared: none; harness faults: 0; "
        "verdict 0 (equal)\n"
    )


def test_importing_it_loads_neither_torch_nor_the_comparing_part() -> None:
    program = "import sys, shadow.experiment; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    loaded = set(done.stdout.split())
    assert not {"torch", "numpy", "batchgen", "rich", "shadow.experiment.laboratory"} & loaded


def test_a_divergence_hook_gets_each_divergence() -> None:
    got: list[Any] = []
    worker, gate = gated(add, add_wrongly, on_divergence=got.append)
    worker.act(1)
    assert tuple(got) == gate.divergences


def test_a_method_that_is_nowhere_is_a_fault_that_names_it() -> None:
    worker, gate = gated(add, add_in_handler)
    gate._effects["other"] = Isolated()
    type(worker)._legacy_other = add
    assert gate.run(worker, "other", 3) == 3
    assert gate.faults == (
        f"other: LookupError at laboratory.py:{gate.faults[0].split(':')[2]}: Gated._legacy_other or "
        "Handler.other is missing",
    )


def test_taped_attributes_are_called_once() -> None:
    class Ledger:
        """Could be copied, but is not to be."""

        def __init__(self) -> None:
            self.pages = [1, 2, 3]

        def take(self) -> int:
            return self.pages.pop()

    class Owner(Worker):
        def __init__(self) -> None:
            super().__init__()
            self.ledger = Ledger()

    def take(self: Any) -> int:
        return self.ledger.take()

    def take_wrongly(self: Any) -> int:
        self.worker.ledger.take()
        return self.worker.ledger.take()

    worker, gate = gated(take, take_wrongly, base=Owner, taped=["ledger"])
    assert worker.act() == 3
    assert worker.ledger.pages == [1, 2]
    found = only(gate)
    assert (found.kind, found.path, found.control) == (Kind.CALLS, "call 2", "(no further call)")
    assert found.candidate.endswith("Ledger.take()")


def test_pool_of_the_support_module_is_not_data() -> None:
    """What the other tests rely on."""
    worker, gate = gated(lambda self: self.pool.take(1), lambda self: self.worker.pool.take(1))
    worker.act()
    assert_equal(gate)
    assert isinstance(worker.pool, Pool)
    assert worker.pool.calls == ["take 1"]


def test_the_example_of_the_package_works() -> None:
    """The call site as docs/experiment.md and the package's docstring show it."""
    text = (ROOT / "docs" / "experiment.md").read_text(encoding="utf-8")
    example = text.split("```python")[1].split("```")[0]
    handler = type(
        "KVCacheManager", (FormsHandler,), {"_get_free": lambda self, n, *, strict=False: (n, strict)}
    )
    space: dict[str, Any] = {"KVCacheManager": handler}
    exec(textwrap.dedent(example), space)
    legacy = {
        "_legacy__get_free": lambda self, n, *, strict=False: (n, strict),
        "_get_free": space["_get_free"],
    }
    worker = type("Owner", (), legacy)()
    space["_KV_GATE"].reload({"BATCHGEN_WORKER_KV_COMPARE": "1"})
    assert worker._get_free(3, strict=True) == (3, True)
    assert_equal(space["_KV_GATE"])
