"""What is sent between processes: events as what has changed, and the comparison that knows what did not."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadow.deltas import Decoder, Delta, Encoder
from shadow.diff import Known, compare_events
from shadow.observation import Digests, Event, Key, Kind, Observed, Pages, Point, Row, Rows
from shadow.pairing import BATCH_ORDER, SAME, Pairing
from shadow.plain import Record
from tests.shadow.record.streams import NAMES, OBSERVED, VIOLATIONS

KEYS = st.builds(
    Key, st.sampled_from(list(Kind)[:4]), st.none() | st.sampled_from("ab"), st.sampled_from("fgh")
)
VALUES = OBSERVED | st.sampled_from([0, 1, True, 1.0, -0.0, 0.0, "1", None, (1,), (True,), b"1"])
EVENTS = st.builds(
    Event,
    st.sampled_from([Point.DECODE, Point.DECODE, Point.BOUNDARY, Point.END]),
    st.integers(0, 9),
    st.lists(st.tuples(KEYS, VALUES), max_size=9).map(dict),
    st.lists(VIOLATIONS, max_size=1).map(tuple),
    st.dictionaries(NAMES, st.integers(0, 9), max_size=2),
    st.integers(0, 2),
    st.none() | st.integers(0, 9),
)


@st.composite
def streams(draw: st.DrawFn) -> list[Event]:
    """Events that have much in common with those before, as those of a run have."""
    found: list[Event] = []
    for event in draw(st.lists(EVENTS, max_size=6)):
        found.append(event)
        for _ in range(draw(st.integers(0, 3))):
            values = dict(found[-1].values)
            values.update(draw(st.lists(st.tuples(KEYS, VALUES), max_size=2)))
            for key in draw(st.lists(st.sampled_from(list(values)), max_size=1)) if values else []:
                del values[key]
            if draw(st.booleans()):
                values = dict(sorted(values.items(), key=lambda item: repr(item[0])))
            found.append(Event(event.point, event.step, values))
    return found


def copied(value: Observed) -> Observed:
    """Equal, and not the same object: what a probe makes anew at each step."""
    made: Observed = pickle.loads(pickle.dumps(value))
    return made


def exact(event: Event) -> tuple[object, ...]:
    """What tells True from 1, -0.0 from 0.0 and one order of the values from another; arrays to the bit."""
    values = [
        (repr(key), type(value), value.values.tobytes(), value.values.shape)
        if isinstance(value, Row | Digests)
        else (repr(key), type(value), repr(value))
        for key, value in event.values.items()
    ]
    said = event.violations, dict(event.checked), event.batch, event.fired
    return event.point, event.step, values, *said


def through(events: list[Event]) -> Iterator[tuple[Delta, Event]]:
    encoder, decoder = Encoder(), Decoder()
    for event in events:
        delta = encoder.encode(event)
        yield delta, decoder.decode(pickle.loads(pickle.dumps(delta, pickle.HIGHEST_PROTOCOL)))


@given(streams())
def test_any_stream_of_events_comes_out_as_it_went_in(events: list[Event]) -> None:
    assert [exact(out) for _, out in through(events)] == [exact(event) for event in events]


def decode_event(step: int, **fields: Observed) -> Event:
    return Event(Point.DECODE, step, {Key(Kind.SEQUENCE, "a", name): value for name, value in fields.items()})


def test_only_what_changed_is_sent_and_all_of_it_at_the_end_of_a_batch() -> None:
    pages = Pages("primary", (1, 2))
    events = [
        decode_event(0, kv_len=1000, pages=pages, rows=Rows(("a",))),
        decode_event(1, kv_len=1001, pages=copied(pages), rows=Rows(("a",))),
        decode_event(2, kv_len=1002, pages=Pages("primary", (1, 2, 3))),
    ]
    events.append(Event(Point.END, 2, events[-1].values))
    events.append(Event(Point.END, 2, events[-1].values))
    sent = [delta for delta, _ in through(events)]
    assert [len(delta.values) for delta in sent] == [3, 1, 2, 2, 2]
    assert [delta.layout is None for delta in sent] == [False, True, False, False, True]
    assert sent[1].values == (1001,) and sent[2].layout is not None and sent[2].layout.fresh == ()


@given(streams(), st.sampled_from([SAME, BATCH_ORDER]), st.data())
def test_a_comparison_that_knows_the_events_before_says_what_one_that_does_not_says(
    events: list[Event], pairing: Pairing, data: Any
) -> None:
    """To the count; whatever changes on one side alone is found in that very event."""
    theirs = []
    for event in events:
        values = {key: copied(value) for key, value in event.values.items()}
        if values and data.draw(st.booleans()):
            values[data.draw(st.sampled_from(list(values)))] = data.draw(VALUES)
        theirs.append(Event(event.point, event.step, values))
    known: dict[Point, Known] = {point: {} for point in Point}
    for (_, ours), (_, other) in zip(through(events), through(theirs), strict=True):
        found = compare_events(ours, other, pairing, known[ours.point])
        anew = compare_events(ours, other, pairing)
        assert found.mismatches == anew.mismatches
        assert +found.compared == +anew.compared
        assert len(known[ours.point]) <= len(ours.values)


def test_arrays_are_not_kept_for_a_comparison_that_never_sees_them_again() -> None:
    row = Row(np.zeros(4, np.float32))
    known: Known = {}
    compare_events(decode_event(0, x=row, n=1), decode_event(0, x=row, n=1), known=known)
    assert [key.field for key in known] == ["n"]


@pytest.mark.parametrize(
    ("before", "now"), [(0.0, -0.0), ((1,), (True,)), (Record("r", (("a", 1),)), Record("r", (("a", 1.0),)))]
)
def test_what_is_equal_and_not_the_same_is_sent_again(before: Observed, now: Observed) -> None:
    *_, (_, out) = through([decode_event(0, x=before), decode_event(1, x=now)])
    assert [repr(value) for value in out.values.values()] == [repr(now)]


def test_what_differs_is_found_again_at_each_event_though_it_stays_as_it_is() -> None:
    ours, theirs = through([decode_event(n, x=1, y=2) for n in range(3)]), decode_event(0, x=1, y=3)
    known: Known = {}
    for _, out in ours:
        assert len(compare_events(out, theirs, known=known).mismatches) == 1
    assert len(known) == 1


def test_whether_renamed_pages_agree_is_asked_again_at_each_event() -> None:
    a, b, theirs, others = (Pages("primary", (page,)) for page in (1, 2, 7, 8))
    known: Known = {}
    assert not compare_events(
        decode_event(0, x=a, y=b), decode_event(0, x=theirs, y=others), BATCH_ORDER, known
    ).mismatches
    both = decode_event(1, x=a, y=b), decode_event(1, x=theirs, y=theirs)
    assert len(compare_events(*both, BATCH_ORDER, known).mismatches) == 1
