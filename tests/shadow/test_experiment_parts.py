"""The parts of a gate on their own: what differs, what may run twice, what is copied, which calls are sampled."""

from __future__ import annotations

import collections
import dataclasses
import enum
import json
import logging
import math
import os
import threading
import time
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shadow.experiment import Pure, about
from shadow.experiment.audit import Auditor
from shadow.experiment.brief import brief
from shadow.experiment.copies import Ref, Thaw, TooLarge
from shadow.experiment.deadline import Deadline, Overdue
from shadow.experiment.differ import Differ, Nature
from shadow.experiment.sampling import Sampler, place_of, position
from shadow.experiment.snapshot import Policy, Snapshot
from tests.shadow.experiment_support import PREFIX, fresh_gates, gated

__all__ = ["fresh_gates"]


class Color(enum.IntEnum):
    RED = 1


@dataclasses.dataclass
class Plan:
    pages: Any
    free: int = 0


# differ


def differences(control: Any, candidate: Any) -> list[tuple[str, Nature, str, str]]:
    differ = Differ()
    differ.compare(control, candidate, "r")
    return [(found.path, found.nature, found.control, found.candidate) for found in differ.differences]


@pytest.mark.parametrize(
    ("control", "candidate"),
    [
        ([1, (2, 3)], (1, [2, 3])),
        ({1, 2}, frozenset({1, 2})),
        (Color.RED, 1),
        ({"pages": [1], "free": 2}, Plan((1,), 2)),
        (math.nan, math.nan),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (collections.deque([1, 2]), [1, 2]),
        (ValueError("a", 1), ValueError("a", 1)),
    ],
)
def test_equal_up_to_what_a_port_may_change(control: Any, candidate: Any) -> None:
    assert differences(control, candidate) == []


@pytest.mark.parametrize(
    ("control", "candidate", "expected"),
    [
        (1, True, ("r", Nature.TYPE, "1", "True")),
        (1, 1.0, ("r", Nature.TYPE, "1", "1.0")),
        (0.0, -0.0, ("r", Nature.VALUE, "0.0", "-0.0")),
        ("a", b"a", ("r", Nature.TYPE, "'a'", "b'a'")),
        ([3, 1, 2], [3, 2, 1], ("r[1]", Nature.ORDER, "[3, 1, 2]", "[3, 2, 1]")),
        ([1, 2], [1], ("r[1]", Nature.MISSING, "2", "(absent)")),
        ({1}, {1, 2}, ("r{2}", Nature.EXTRA, "(absent)", "2")),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, ("r.keys()", Nature.ORDER, "['a', 'b']", "['b', 'a']")),
        ({"a": {"b": [0, 1]}}, {"a": {"b": [0, 2]}}, ("r['a']['b'][1]", Nature.VALUE, "1", "2")),
        (Plan([1]), Plan([2]), ("r.pages[0]", Nature.VALUE, "1", "2")),
        (Plan([1]), Color.RED, ("r", Nature.TYPE, "Plan(pages=[1], free=0)", "Color.RED")),
        (None, 0, ("r", Nature.TYPE, "None", "0")),
    ],
)
def test_the_field_and_the_kind_of_difference(control: Any, candidate: Any, expected: Any) -> None:
    assert differences(control, candidate) == [expected]


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats()
    | st.text(max_size=2)
    | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers(0, 3), inner, max_size=3),
    max_leaves=8,
)


@given(plain, plain)
@settings(max_examples=200, derandomize=True, deadline=None)
def test_no_difference_means_the_same_text(control: Any, candidate: Any) -> None:
    differ = Differ()
    assert differ.compare(control, candidate, "r") == (repr(control) == repr(candidate))
    assert differ.compared >= 1


def test_cycles_end() -> None:
    one: list[Any] = [1]
    one.append(one)
    two: list[Any] = [1]
    two.append(two)
    assert differences(one, two) == []


def test_a_walk_that_is_too_long_says_so() -> None:
    differ = Differ(limit=10)
    assert differ.compare([[n] for n in range(99)], [[n] for n in range(99)], "r")
    assert differ.cut


@given(st.recursive(plain, lambda inner: st.tuples(inner, inner), max_leaves=5))
@settings(max_examples=100, derandomize=True, deadline=None)
def test_brief_is_bounded(value: Any) -> None:
    assert len(brief([value] * 10, 60)) <= 60


def test_brief_of_large_values() -> None:
    assert brief(10**5000) == "<int of 16610 bits>"
    assert brief(list(range(100))) == "[0, 1, 2, 3, 4, 5, … 100 in all]"
    assert brief("x" * 1000, 500).endswith("x'… (1000 in all)")


# audit

TABLE = {"a": 1}
log = logging.getLogger("tests.experiment")
Point = collections.namedtuple("Point", "x y")


class Writer:
    count = 0
    registry: ClassVar[dict[str, int]] = {}

    def write(self) -> None:
        open("never", "w").close()

    def total(self, by: int) -> int:
        return self.helper() + by

    def helper(self) -> int:
        return self.write()  # type: ignore[return-value]

    @staticmethod
    def safe() -> int:
        return 1


def harmless(self: Any, items: list[int]) -> Any:
    log.info("items %s", items)
    ordered = sorted(items, key=lambda item: math.sqrt(item + self.offset))
    if isinstance(self.pool, Writer) or os.environ.get("X"):
        ordered.append(TABLE["a"])
    try:
        return json.dumps([Plan(ordered), Point(1, 2), Color.RED, Writer.safe()])
    except (KeyError, ValueError):
        return dataclasses.replace(Plan(1), free=2)


def test_a_function_without_traces_may_run_twice() -> None:
    assert Auditor().function(harmless) is None


def opens(self: Any) -> None:
    open("never")  # noqa: SIM115


def rebinds(self: Any) -> None:
    global TABLE
    TABLE = {}


def stores(self: Any) -> None:
    TABLE["b"] = 2


def mutates(self: Any) -> None:
    TABLE.update(b=2)


def sets_class(self: Any) -> None:
    Writer.count += 1


def adds_to_class(self: Any) -> None:
    Harmless.count += 1


class Harmless:
    inner: Any = None
    count = 0


def renames_class(self: Any) -> None:
    renamed = Harmless
    renamed.count = 1


def stores_on_class(self: Any) -> None:
    Writer.registry["a"] = 1


def makes(self: Any) -> None:
    Writer().safe()


def evaluates(self: Any) -> None:
    eval("1")


def environment(self: Any) -> None:
    os.environ["X"] = "1"


def nested(self: Any) -> None:
    def inner() -> list[Any]:
        return [open(name) for name in self.names]

    inner()


def imports(self: Any) -> None:
    import shutil as tool

    tool.rmtree("never")


def calls_method(self: Any) -> int:
    return self.total(1)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (opens, "opens calls open"),
        (rebinds, "rebinds rebinds the module global TABLE"),
        (stores, "stores may write the module-level TABLE"),
        (mutates, "mutates may write the module-level TABLE"),
        (sets_class, f"sets_class sets {__name__}.Writer.count"),
        (adds_to_class, f"adds_to_class sets {__name__}.Harmless.count"),
        (renames_class, f"renames_class gives {__name__}.Harmless another name"),
        (stores_on_class, f"stores_on_class may write the module-level {__name__}.Writer.registry"),
        (makes, "Writer.write calls open"),
        (evaluates, "evaluates calls eval"),
        (environment, "environment may write os.environ"),
        (nested, "nested calls open"),
        (imports, "imports calls shutil.rmtree"),
        (calls_method, "Writer.write calls open"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_why_a_function_may_not_run_twice(function: Any, reason: str) -> None:
    assert Auditor().function(function, Writer) == reason


def test_functions_of_modules_are_handed_to_whoever_can_record_them() -> None:
    asked: list[str] = []

    def act(self: Any) -> None:
        time.sleep(self.count)
        time.monotonic()
        os.remove(self.path)

    assert Auditor(lambda path: asked.append(path) or True).function(act) is None  # type: ignore[func-returns-value]
    assert asked == ["time.sleep", "time.monotonic", "os.remove"]


# copies


def everything_may_run_twice(value: Any) -> None:
    return None


class Model:
    """An ordinary object that holds something which cannot be copied."""

    def __init__(self) -> None:
        self.thread = threading.local()


class Entry:
    """An ordinary object of plain data."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Slotted:
    __slots__ = ("a", "unset")

    def __init__(self, a: Any) -> None:
        self.a = a


class Base(dict):  # type: ignore[type-arg]
    pass


@dataclasses.dataclass(frozen=True)
class Frozen:
    inner: Any


def snapshot(**limits: Any) -> Snapshot:
    return Snapshot(Policy(everything_may_run_twice, lambda cls: None), **limits)


def thawed(value: Any) -> Any:
    return Thaw(lambda real: ("stand-in", real), lambda owner, name: (owner, name)).copy(
        snapshot().take(value)
    )


def test_a_copy_is_equal_and_shares_nothing_that_can_change() -> None:
    dictionary = Base(k=[1])
    dictionary.extra = [2]
    value = [
        [1],
        {"a": {1, 2}},
        Plan([1]),
        Entry([1]),
        Slotted([1]),
        SimpleNamespace(a=[1]),
        collections.defaultdict(list, {1: [1]}),
        collections.deque([[1]], maxlen=3),
        dictionary,
        Point([1], 2),
        Frozen([1]),
    ]
    copy = thawed(value)
    assert differences(value, copy) == []
    for ours, theirs in zip(value, copy, strict=True):
        assert ours is not theirs
        assert type(ours) is type(theirs)
    assert copy[3].value is not value[3].value  # type: ignore[attr-defined]
    assert copy[8].extra == [2]
    assert copy[8].extra is not dictionary.extra


def test_what_cannot_change_is_not_copied() -> None:
    value = [Frozen((1, "a")), (1, 2), Color.RED, "text", frozenset({1})]
    assert all(ours is theirs for ours, theirs in zip(value[:4], thawed(value)[:4], strict=True))


def test_sharing_is_kept() -> None:
    shared = [1]
    value: dict[str, Any] = {"a": shared, "b": Plan(shared)}
    value["self"] = value
    copy = thawed(value)
    assert copy["a"] is copy["b"].pages
    assert copy["self"] is copy


def test_what_cannot_be_copied_is_stood_in_for() -> None:
    model = Model()
    holder = Entry(Entry(model))
    copy = thawed([model, Plan(model), holder])
    assert copy[0] == ("stand-in", model)
    assert copy[1].pages == ("stand-in", model)
    assert copy[2] == ("stand-in", holder)


def test_an_object_that_cannot_be_copied_leaves_no_half_copies_behind() -> None:
    shared: list[Any] = [1]
    taken = snapshot()
    holder = Entry([shared, Model()])
    assert type(taken.take(holder)) is Ref
    shared.append(2)
    assert taken.take(shared) == [1, 2]


def test_pools_of_floats_are_collaborators_and_rows_of_tokens_are_data() -> None:
    torch = pytest.importorskip("torch")
    taken = snapshot()
    assert type(taken.take(Entry(torch.zeros(2)))) is Ref
    copied = snapshot().take(Entry(torch.tensor([1, 2])))
    assert type(copied) is Entry
    assert copied.value.tolist() == [1, 2]


def test_limits_are_kept_and_nothing_is_left_half_copied() -> None:
    torch = pytest.importorskip("torch")
    taken = snapshot(objects=50)
    large = [[index] for index in range(100)]
    with pytest.raises(TooLarge):
        taken.take(large)
    assert not taken.knows(large)
    with pytest.raises(TooLarge):
        snapshot(megabytes=0.001).take([torch.zeros(1000)])


# sampling


def test_a_sequence_is_always_at_the_same_place() -> None:
    assert position("uuid-1") == pytest.approx(0.5509370, abs=1e-6)
    assert place_of("uuid-1", "x") == (position("uuid-1"), "uuid-1")
    places = [position(str(index)) for index in range(2000)]
    assert 0.45 < sum(places) / 2000 < 0.55


def test_a_batch_is_at_the_place_of_its_lowest_sequence() -> None:
    uuids = [f"u{index}" for index in range(10)]
    lowest = min(uuids, key=position)
    assert place_of(uuids, "x") == (position(lowest), lowest)


def test_a_call_without_a_sequence_belongs_to_what_it_is_about() -> None:
    with about("uuid-7"):
        assert place_of(None, "x") == (position("uuid-7"), "uuid-7")
    assert place_of(None, "x") == (position("x"), "")


def test_sampling_sticks_to_the_sequence() -> None:
    def act(self: Any, steps: int, *, uuid: str) -> int:
        return steps

    worker, gate = gated(
        act, lambda self, steps, *, uuid: steps, Pure(key="uuid"), env={f"{PREFIX}_COMPARE": "30%"}
    )
    uuids = [f"u{index}" for index in range(60)]
    for step in range(3):
        for uuid in uuids:
            worker.act(step, uuid=uuid)
    sampled = [uuid for uuid in uuids if position(uuid) < 0.3]
    assert 0 < len(sampled) < 60
    summary = gate.summary()
    assert summary.compared == 3 * len(sampled)
    assert summary.skipped == (("sampling", 3 * (60 - len(sampled))),)


def test_the_budget_leaves_out_whole_sequences_and_lets_them_come_back() -> None:
    sampler = Sampler(1.0, 0.1)
    for _ in range(20):
        sampler.spent(control=1.0, overhead=0.5)
    assert sampler.why_not(0.0) == "budget"
    for _ in range(100):
        sampler.spent(control=1.0, overhead=0.0)
    kept = [place / 100 for place in range(100) if sampler.why_not(place / 100) is None]
    left_out = [place / 100 for place in range(100) if sampler.why_not(place / 100) == "budget"]
    assert kept
    assert left_out
    assert max(kept) < min(left_out)
    for _ in range(2000):
        sampler.spent(control=1.0, overhead=0.0)
    assert all(sampler.why_not(place / 100) is None for place in range(100))


def test_comparing_stays_within_the_budget() -> None:
    def act(self: Any) -> int:
        return 1

    worker, gate = gated(act, act, Pure(), env={f"{PREFIX}_COMPARE": "1", f"{PREFIX}_BUDGET": "0.05"})
    for _ in range(3000):
        worker.act()
    sampler = gate._laboratory.sampler  # type: ignore[union-attr]
    assert sampler.overhead_seconds < 0.05 * sampler.control_seconds + 0.1 + 0.2
    reasons = dict(gate.summary().skipped)
    assert reasons["budget"] > 1000
    assert reasons["budget"] + gate.summary().compared == 3000


# deadline


def test_a_deadline_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shadow.experiment.deadline._TICK", 0.0005)

    def busy(seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    broken = 0
    for index in range(300):
        try:
            with Deadline(0.001):
                busy(0.0001 * (index % 30))
        except Overdue:
            broken += 1
        busy(0.0002)
    assert 0 < broken < 300
