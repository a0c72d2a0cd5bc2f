"""The self-test of the comparison: known faults, injected into copies of what passes by, must alarm.

Silence of the harness means something only while this does not fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reports import Fact
from shadow.diff import Mismatch, Nature, compare_events
from shadow.lockstep import Outcome, Trouble
from shadow.observation import Call, Calls, Digests, Event, Key, Kind, Pages, Point, Row, Violation
from shadow.pairing import SAME, Pairing

EVERY = 64
"""Decode steps between two self-tests."""

Values = dict[Key, Any]


@dataclass(frozen=True)
class Fault:
    """`inject` changes the candidate's value of `key` in place; the alarm must be of that kind and sequence."""

    name: str
    kind: Kind
    nature: Nature
    holds: Callable[[Key, Any], bool]  # whether it can be injected into such a value
    inject: Callable[[Values, Key], None]


def _swap_pages(values: Values, key: Key) -> None:
    digests = values[key]
    swapped = digests.values.copy()
    swapped[:, [0, 1]] = swapped[:, [1, 0]]
    values[key] = replace(digests, values=swapped)


def _has_two_pages(key: Key, value: Any) -> bool:
    if not isinstance(value, Digests) or value.values.shape[1] < 2:
        return False
    return bool((value.values[:, 0] != value.values[:, 1]).any())


def _one_ulp(values: Values, key: Key) -> None:
    row = values[key].values.copy()
    row[len(row) // 2] = np.nextafter(row[len(row) // 2], np.float32(np.inf))
    values[key] = Row(row)


def _not_a_number(values: Values, key: Key) -> None:
    row = values[key].values.copy()
    row[-1] = np.nan
    values[key] = Row(row)


def _is_row(key: Key, value: Any) -> bool:
    return isinstance(value, Row) and bool(np.isfinite(value.values).all())


def _one_more(values: Values, key: Key) -> None:
    values[key] += 1


def _one_short(values: Values, key: Key) -> None:
    values[key] -= 1


def _is_int(key: Key, value: Any) -> bool:
    return type(value) is int


def _same_page_twice(values: Values, key: Key) -> None:
    pages = values[key]
    values[key] = replace(pages, ids=(*pages.ids[:-1], pages.ids[0]))


def _owns_two(key: Key, value: Any) -> bool:
    return isinstance(value, Pages) and value.owned and len(set(value.ids)) >= 2


def _lost(values: Values, key: Key) -> None:
    del values[key]


def _another_type(values: Values, key: Key) -> None:
    values[key] = str(values[key])


def _call_left_out(values: Values, key: Key) -> None:
    values[key] = Calls(values[key].calls[:-1])


def _reordered(values: Values, key: Key) -> None:
    values[key] = (*values[key][1:], values[key][0])


def _is_list(key: Key, value: Any) -> bool:
    return isinstance(value, tuple) and len(set(map(repr, value))) >= 2


def _doubled(values: Values, key: Key) -> None:
    values[key._replace(field=f"{key.field}.canary")] = values[key]


FAULTS: tuple[Fault, ...] = (
    Fault("two pages swapped", Kind.KV, Nature.VALUE, _has_two_pages, _swap_pages),
    Fault("a length one short", Kind.PAGE_TABLE, Nature.VALUE, _is_int, _one_short),
    Fault("a page owned twice", Kind.PAGE_TABLE, Nature.VALUE, _owns_two, _same_page_twice),
    Fault("one unit in the last place", Kind.LOGITS, Nature.NUMERIC, _is_row, _one_ulp),
    Fault("not a number", Kind.LOGITS, Nature.NUMERIC, _is_row, _not_a_number),
    Fault("another token", Kind.TOKENS, Nature.VALUE, _is_int, _one_more),
    Fault("a field that is missing", Kind.SEQUENCE, Nature.MISSING, lambda key, value: True, _lost),
    Fault("a field too many", Kind.SEQUENCE, Nature.EXTRA, lambda key, value: True, _doubled),
    Fault("a field of another type", Kind.SEQUENCE, Nature.TYPE, _is_int, _another_type),
    Fault("a list in another order", Kind.BOUNDARY, Nature.ORDER, _is_list, _reordered),
    Fault(
        "an effect left out",
        Kind.EFFECTS,
        Nature.MISSING,
        lambda k, v: isinstance(v, Calls) and bool(v.calls),
        _call_left_out,
    ),
)
VIOLATED = "an invariant that does not hold"
NAMES = (*(fault.name for fault in FAULTS), VIOLATED)

_SAMPLE: Values = {
    Key(Kind.PAGE_TABLE, "canary", "kv_len"): 17,
    Key(Kind.PAGE_TABLE, "canary", "owned_pages"): Pages("canary", (3, 1, 2)),
    Key(Kind.EFFECTS, None, "calls"): Calls((Call("take", (("canary", 1),)), Call("free", (("canary", 1),)))),
    Key(Kind.SEQUENCE, "canary", "decoded_length"): 5,
    Key(Kind.KV, "canary", "k"): Digests(np.array([[1, 2, 3], [4, 5, 6]], dtype=np.int64), "page", tokens=4),
    Key(Kind.BOUNDARY, None, "onhold"): ("canary", "another"),
    Key(Kind.LOGITS, "canary", "logits"): Row(np.linspace(-1, 1, 64, dtype=np.float32)),
    Key(Kind.TOKENS, "canary", "token"): 7,
}
"""One value of each sort, for what an event does not hold."""


def missed(event: Event, pairing: Pairing = SAME) -> tuple[int, list[str]]:
    """(faults injected into copies of `event`, the names of those that no alarm followed)."""
    silent: list[str] = []
    injected = 0
    for fault in FAULTS:
        found = next(_suitable(fault, event, pairing), None)
        if found is None or (fault.nature is Nature.ORDER and pairing.rows_reordered):
            continue  # differs by intent
        key, value = found
        ours, theirs = {key: value}, {key: value}
        fault.inject(theirs, key)
        injected += 1
        alarms = compare_events(_only(event, ours), _only(event, theirs), pairing).mismatches
        if not any(_right(alarm, fault.kind, fault.nature, key.sequence) for alarm in alarms):
            silent.append(fault.name)
    violation = Violation("canary", "injected", "canary")
    broken = replace(_only(event, {}), violations=(violation,))
    alarms = compare_events(_only(event, {}), broken, pairing).mismatches
    if not any(_right(alarm, Kind.INVARIANT, Nature.VIOLATED, "canary") for alarm in alarms):
        silent.append(VIOLATED)
    return injected + 1, silent


def _suitable(fault: Fault, event: Event, pairing: Pairing) -> Iterator[tuple[Key, Any]]:
    """Values of the event, else of the sample, that the fault can be injected into and the pairing looks at."""
    for values in (event.values, _SAMPLE):
        for key, value in values.items():
            if (
                key.kind is fault.kind
                and fault.holds(key, value)
                and not pairing.ignores(key.kind, key.field)
            ):
                yield key, value


def _only(event: Event, values: Values) -> Event:
    return replace(event, values=values, violations=(), checked={})


def _right(alarm: Mismatch, kind: Kind, nature: Nature, sequence: str | None) -> bool:
    # Of calls the alarm names the sequence that they were for.
    return alarm.kind is kind and alarm.nature is nature and (sequence is None or alarm.sequence == sequence)


class Canary:
    """Watches a lockstep run (a `Watcher`); `missed` names the faults that went by unseen.

    Tests itself once on a sample when made, then on copies of what passes, every `every` decode steps.
    """

    def __init__(self, every: int = EVERY, pairing: Pairing = SAME) -> None:
        self.every, self.pairing = every, pairing
        self.times = 0
        self.injected = 0
        self.missed: list[str] = []
        self._next = 0
        self._test(Event(Point.DECODE, 0, _SAMPLE))

    def watch(self, control: Event, candidate: Event) -> None:
        if control.point is Point.DECODE and control.step >= self._next:
            self._next = control.step + self.every
            self._test(control)

    def _test(self, event: Event) -> None:
        self.times += 1
        self.injected, silent = missed(event, self.pairing)
        self.missed += [f"{name} (step {event.step})" for name in silent]

    def judged(self, outcome: Outcome) -> Outcome:
        """The outcome, without a verdict where an injected fault went by: silence would mean nothing."""
        if not self.missed or outcome.trouble is not None:
            return outcome
        seen = ", ".join(dict.fromkeys(self.missed))
        return replace(outcome, trouble=Trouble(f"the self-test failed: no alarm for {seen}"))

    @property
    def fact(self) -> Fact:
        """What the report says of it."""
        good = self.injected - len({name.rsplit(" (", 1)[0] for name in self.missed})
        return Fact("self-test", f"{good}/{self.injected} injected faults alarm, at {self.times} times")
