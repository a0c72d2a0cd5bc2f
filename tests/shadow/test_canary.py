"""Injected faults must alarm; a comparison that has gone blind leaves no verdict."""

from __future__ import annotations

import numpy as np
import pytest

from shadow import canary
from shadow.canary import FAULTS, NAMES, Canary, missed
from shadow.diff import Comparison, Mismatch, compare_events
from shadow.lockstep import Outcome, Trouble
from shadow.observation import Event, Key, Kind, Point, Row
from shadow.pairing import BATCH_ORDER, PAIRINGS, SAME, Pairing


def event(step: int) -> Event:
    return Event(Point.DECODE, step, {Key(Kind.LOGITS, "a", "logits"): Row(np.ones(8, dtype=np.float32))})


def test_twelve_faults_alarm_at_the_start_and_every_so_many_steps() -> None:
    watching = Canary(every=4)
    for step in range(10):
        watching.watch(event(step), event(step))
    assert watching.missed == [] and watching.times == 1 + 3
    assert watching.fact.value == "12/12 injected faults alarm, at 4 times"
    assert len(NAMES) == len(FAULTS) + 1 == 12


@pytest.mark.parametrize("pairing", PAIRINGS.values(), ids=PAIRINGS)
def test_what_a_pairing_ignores_is_not_injected(pairing: Pairing) -> None:
    injected, silent = missed(event(0), pairing)
    assert not silent and injected >= 6
    assert (injected == 12) == (pairing not in (BATCH_ORDER, PAIRINGS["dtype"]))


def test_the_events_that_pass_are_left_as_they_are() -> None:
    passing = event(0)
    before = {key: value.values.copy() for key, value in passing.values.items() if isinstance(value, Row)}
    missed(passing)
    assert passing.values.keys() == before.keys()
    assert all((passing.values[key].values == rows).all() for key, rows in before.items())  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [Kind.LOGITS, Kind.KV, Kind.INVARIANT, Kind.EFFECTS])
def test_a_blind_comparison_is_named_and_leaves_no_verdict(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(legacy: Event, candidate: Event, pairing: Pairing = SAME) -> Comparison:
        seen = compare_events(legacy, candidate, pairing)
        kept: tuple[Mismatch, ...] = tuple(m for m in seen.mismatches if m.kind is not kind)
        return Comparison(seen.compared, kept, seen.opaque)

    monkeypatch.setattr(canary, "compare_events", blind)
    watching = Canary()
    assert watching.missed
    outcome = watching.judged(Outcome())
    assert outcome.trouble is not None and "the self-test failed: no alarm for" in outcome.trouble.message
    assert not watching.fact.value.startswith("12/12")
    earlier = Outcome(trouble=Trouble("the legacy side died"))
    assert watching.judged(earlier) is earlier
