"""Legacy bodies with the ways that their calls take; `python -m tests.shadow.experiment_branches` runs them all.

Needs nothing but the package, so that interpreters without the test tools can run it, too. Lines are counted from
that of the `def`.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any

from shadow.experiment import Gate, Isolated

PREFIX = "TEST_BRANCHES"


def plain(self: Any, n: int) -> int:
    if n > 3:
        return 1
    else:
        n += 1
    return n


def early(self: Any, n: int) -> int | None:
    if n:
        return n


def loops(self: Any, items: list[int]) -> int:
    total = 0
    for item in items:
        if item < 0:
            break
        total += item
    while total > 10:
        total -= 10
    return total


def caught(self: Any, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return 0
    except TypeError:
        return 1


def ended(self: Any, n: int) -> int:
    try:
        if n < 0:
            raise ValueError("negative")
        n += 1
    finally:
        if n == 5:
            self.count = 5
    return n


def matched(self: Any, value: Any) -> int:
    match value:
        case [_, second]:
            return second
        case {"n": n} if n:
            return n
        case _:
            return 0


def both(self: Any, a: int, b: int) -> int:
    return 1 if a and b else 2


def chained(self: Any, n: int) -> int:
    assert n < 99, "too many"
    if 1 < n < 5:
        return 1
    return 2


def comprehended(self: Any, items: list[int]) -> list[int]:
    return [
        item
        for item in items
        if item
    ]  # fmt: skip


def nested(self: Any, n: int) -> int:
    def inner(m: int) -> int:
        if m:
            return 1
        return 2

    return inner(n)


def straight(self: Any, n: int) -> int:
    return n + 1


def _long() -> Callable[..., Any]:
    """Jumps so far that their instructions have prefixes."""
    body = "".join(f"        n = (n + {i}) * 2\n" for i in range(99))
    source = f"def far(self, n):\n    while n == 1:\n{body}    if n:\n{body}    return n\n"
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, "far.py", "exec"), names)
    return names["far"]


far = _long()

#: By body: calls in order, with the ways that each is the first to take.
CASES: dict[Callable[..., Any], list[tuple[tuple[Any, ...], set[str]]]] = {
    plain: [((1,), {"1 -> 4"}), ((2,), set()), ((5,), {"1 -> 2"})],
    early: [((0,), {"1 -> exit"}), ((1,), {"1 -> 2"})],
    loops: [
        (([],), {"2 -> 6", "6 -> 8"}),
        (([-1],), {"2 -> 3", "3 -> 4"}),
        (([5, 6],), {"3 -> 5", "6 -> 7"}),
    ],
    caught: [(("7",), set()), (("x",), {"3 -> 4"}), ((None,), {"3 -> 5", "5 -> 6"}), (("8",), set())],
    ended: [((1,), {"2 -> 4", "6 -> 8"}), ((-1,), {"2 -> 3"}), ((4,), {"6 -> 7"})],
    matched: [
        ((3,), {"2 -> 4", "4 -> 6 (false)"}),
        (([1, 2, 3],), set()),
        (([1, 2],), {"2 -> 3"}),
        (({"n": 0},), {"4 -> 4 (true)", "4 -> 6 (false) guard"}),
        (({"n": 4},), {"4 -> 5"}),
    ],
    both: [((0, 1), {"1 -> 1 (false)"}), ((1, 1), {"1 -> 1 (true)", "1 -> 1 (true) right"})],
    chained: [((0,), {"2 -> 4"}), ((9,), set()), ((2,), {"2 -> 3"})],
    nested: [((0,), {"2 -> 4"}), ((1,), {"2 -> 3"})],
    straight: [((1,), set())],
    far: [((0,), {"1 -> 101", "101 -> 201"}), ((5,), {"101 -> 102"}), ((1,), {"1 -> 2"})],
}
#: Those that no call of the cases takes.
NEVER = {caught: {"5 -> raise"}, both: {"1 -> 1 (false) right"}}


def gate_of(legacy: Callable[..., Any], **env: str) -> tuple[Any, Gate]:
    """A worker and its gate; the handler's method is the legacy body itself."""

    class Worker:
        count = 0
        _legacy_act = legacy

        def act(self, *args: Any) -> Any:
            return gate.run(self, "act", *args)

    class Handler:
        def __init__(self, worker: Any) -> None:
            self.worker = worker

        @classmethod
        def for_worker(cls, worker: Any) -> Handler:
            return cls(worker)

        def act(self, *args: Any) -> Any:
            return legacy(self.worker, *args)

    gate = Gate(PREFIX, Handler, {"act": Isolated()})
    gate.reload({f"{PREFIX}_COMPARE": "1", f"{PREFIX}_BRANCHES": "1", **env})
    return Worker(), gate


def labels(gate: Gate) -> tuple[str, ...]:
    """All branches, taken or not."""
    return tuple(gate._ledger.coverage["act"].labels)


def relative(legacy: Callable[..., Any], label: str) -> str:
    first = legacy.__code__.co_firstlineno
    at, to = label.partition(":")[2].split(" -> ")
    to = re.sub(r"^\d+", lambda found: str(int(found[0]) - first), to)
    return f"{int(at.split(':')[0]) - first} -> {to}"


def newly_taken(legacy: Callable[..., Any]) -> list[list[str]]:
    """For each call of a case what it was the first to take; at last what none did."""
    worker, gate = gate_of(legacy)
    left: set[str] | None = None
    found = []
    for args, _ in CASES[legacy]:
        with contextlib.suppress(ValueError):
            worker.act(*args)
        count = dict(gate.summary().methods)["act"]
        assert not count.faults and not count.skipped and not count.uncounted, (gate.faults, count)
        before = set(labels(gate)) if left is None else left
        left = set(count.unseen)
        assert count.branches == len(labels(gate)) == count.branches_seen + len(left)
        found.append(sorted(relative(legacy, label) for label in before - left))
    gate.reload({})
    return [*found, sorted(relative(legacy, label) for label in left or ())]


def expected(legacy: Callable[..., Any]) -> list[list[str]]:
    """What stands behind a label tells two conditions of one line apart for the reader of the cases only."""
    wanted = [*(ways for _, ways in CASES[legacy]), NEVER.get(legacy, set())]
    return [sorted(re.sub(r" (guard|right)$", "", way) for way in ways) for ways in wanted]


if __name__ == "__main__":
    print(json.dumps({legacy.__name__: [newly_taken(legacy), expected(legacy)] for legacy in CASES}))
