"""Two records compared as columns: the same counts and findings as event by event, the first one located."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shadow.cli import main
from shadow.diff import compare_events
from shadow.noise import Bound, Class, Conditions, NoiseFloor, save
from shadow.observation import Event, Key, Kind, Point, Row
from shadow.record.diff import check_comparable, diff_records, first_divergence, judge_of
from shadow.record.format import RecordError
from shadow.record.reader import Record, open_record
from shadow.tally import Tally
from tests.shadow.record.streams import OBSERVED, events, written


def tallied(legacy: Record, candidate: Record, bound: float | None = None) -> Tally:
    tally = Tally()
    diff_records(legacy, candidate, judge_of(legacy, candidate, bound), tally)
    return tally


def naively(legacy: list[Event], candidate: list[Event]) -> Tally:
    """Event by event, as a lockstep run does."""
    tally = Tally()
    for ours, theirs in zip(legacy, candidate, strict=False):
        if ours.point is not theirs.point:
            tally.compared[Kind.SCHEDULE] += 1
            tally.differing[Kind.SCHEDULE] += 1
            return tally
        tally.add(ours.point, compare_events(ours, theirs))
    return tally


@st.composite
def pairs(draw: st.DrawFn) -> tuple[list[Event], list[Event]]:
    """A stream and one that differs in a few values, keys or points."""
    legacy = draw(events())
    candidate = list(legacy)
    for index in draw(st.lists(st.integers(0, max(0, len(legacy) - 1)), max_size=3)) if legacy else ():
        event = candidate[index]
        values = dict(event.values)
        match draw(st.integers(0, 3)):
            case 0 if values:
                values[draw(st.sampled_from(list(values)))] = draw(OBSERVED)
            case 1 if values:
                del values[draw(st.sampled_from(list(values)))]
            case 2:
                values[Key(Kind.TOKENS, "new", "token")] = draw(OBSERVED)
            case 3:
                event = replace(event, point=draw(st.sampled_from(Point)))
        candidate[index] = replace(event, values=values)
    return legacy, candidate


@given(pairs(), st.integers(1, 4), st.integers(1, 4))
@settings(deadline=None, max_examples=60)
def test_counts_and_findings_are_those_of_event_by_event(
    pair: tuple[list[Event], list[Event]], ours: int, theirs: int
) -> None:
    """Whatever the chunks, and whether or not they begin alike."""
    with tempfile.TemporaryDirectory() as folder:
        legacy, candidate = (
            open_record(written(Path(folder) / name, stream, chunk_events=chunk))
            for name, stream, chunk in zip(("a", "b"), pair, (ours, theirs), strict=True)
        )
        tally, expected = tallied(legacy, candidate), naively(*pair)
        first = first_divergence(legacy, candidate, judge_of(legacy, candidate))
    tally.compared[Kind.OUTCOME] -= 1 if not tally.differing[Kind.SCHEDULE] else 0
    assert +tally.compared == +expected.compared
    assert +tally.differing == +expected.differing
    assert +tally.hygiene == +expected.hygiene
    shown = [m for m in tally.kept if m.kind is not Kind.SCHEDULE]
    assert shown == expected.kept
    assert tally.first_of_kind.keys() == (+expected.differing).keys()
    assert first == tally.first


def decode(step: int, **values: int) -> Event:
    tokens = {Key(Kind.TOKENS, name, "token"): value for name, value in values.items()}
    return Event(Point.DECODE, step, tokens)


def test_more_differences_than_are_kept_are_counted_exactly_and_the_first_of_each_kind_is_kept(
    tmp_path: Path,
) -> None:
    late = Key(Kind.SEQUENCE, "a", "status")
    legacy = [replace(decode(i, a=i), values={**decode(i, a=i).values, late: "X"}) for i in range(200)]
    candidate = [
        replace(
            event, values={**event.values, Key(Kind.TOKENS, "a", "token"): -1, late: "X" if i < 150 else "Y"}
        )
        for i, event in enumerate(legacy)
    ]
    paths = [written(tmp_path / name, stream) for name, stream in (("a", legacy), ("b", candidate))]
    tally = tallied(*map(open_record, paths))
    assert tally.differing == Counter({Kind.TOKENS: 200, Kind.SEQUENCE: 50})
    assert len(tally.kept) == 50 and tally.first_of_kind[Kind.SEQUENCE].step == 150
    first = tally.first
    assert first is not None and (first.step, first.sequence, first.field) == (0, "a", "token")


def test_the_first_divergence_is_the_event_that_differs_whatever_differs_after_it(tmp_path: Path) -> None:
    legacy = [decode(i, a=i, b=2 * i) for i in range(100)]
    candidate = [decode(i, a=i, b=2 * i + (i >= 61)) for i in range(100)]
    records = [
        open_record(written(tmp_path / name, stream, chunk_events=chunk))
        for name, stream, chunk in (("a", legacy, 8), ("b", candidate, 8), ("c", candidate, 5))
    ]
    for other in records[1:]:
        first = first_divergence(records[0], other, judge_of(records[0], other))
        assert first is not None
        assert (first.kind, first.step, first.sequence, first.legacy, first.candidate) == (
            Kind.TOKENS,
            61,
            "b",
            "122",
            "123",
        )
    assert first_divergence(records[1], records[2], judge_of(records[1], records[2])) is None


def test_schedules_that_part_end_the_comparison_there(tmp_path: Path) -> None:
    legacy = [decode(i, a=i) for i in range(9)]
    candidate = [
        *legacy[:5],
        replace(legacy[5], point=Point.BOUNDARY),
        *(decode(i, a=-1) for i in range(6, 9)),
    ]
    paths = [written(tmp_path / name, stream) for name, stream in (("a", legacy), ("b", candidate))]
    tally = tallied(*map(open_record, paths))
    assert tally.total == 1 and tally.first is not None
    assert (tally.first.kind, tally.first.step) == (Kind.SCHEDULE, 5)
    assert tally.first.candidate == "boundary after 5 decode steps"


@pytest.mark.parametrize(
    ("outcome", "compared"), [("done", 1), ("raised KVExhausted: none left", 1), (None, 0)]
)
def test_how_the_runs_ended_is_compared_where_both_did(
    tmp_path: Path, outcome: str | None, compared: int
) -> None:
    stream = [decode(i, a=i) for i in range(9)]
    legacy = open_record(written(tmp_path / "a", stream))
    tally = tallied(legacy, open_record(written(tmp_path / "b", stream[:8], outcome)))
    assert tally.compared[Kind.OUTCOME] == compared
    assert tally.compared[Kind.TOKENS] == 8
    assert tally.differing[Kind.OUTCOME] == compared


def test_a_bound_forgives_logits_up_to_it_and_can_be_chosen_afterwards(tmp_path: Path) -> None:
    def stream(error: float) -> list[Event]:
        row = np.array([1.0, 2.0, 2.0], np.float32)
        row[0] += error
        return [Event(Point.DECODE, 0, {Key(Kind.LOGITS, "a", "logits"): Row(row)})]

    legacy, candidate = (
        open_record(written(tmp_path / name, stream(error))) for name, error in (("a", 0.0), ("b", 0.03))
    )
    assert tallied(legacy, candidate).differing[Kind.LOGITS] == 1
    assert tallied(legacy, candidate, 0.0099).differing[Kind.LOGITS] == 1
    assert tallied(legacy, candidate, 0.0101).total == 0
    assert first_divergence(legacy, candidate, judge_of(legacy, candidate, 0.0101)) is None


def test_what_a_bound_forgives_is_not_counted_behind_the_findings_that_are_kept(tmp_path: Path) -> None:
    def stream(errors: list[float]) -> list[Event]:
        key = Key(Kind.LOGITS, "a", "logits")
        return [
            Event(Point.DECODE, i, {key: Row(np.array([1.0 + e], np.float32))}) for i, e in enumerate(errors)
        ]

    legacy, candidate = (
        open_record(written(tmp_path / name, stream(errors)))
        for name, errors in (("a", [0.0] * 120), ("b", [0.5] * 60 + [0.01] * 60))
    )
    assert tallied(legacy, candidate).differing[Kind.LOGITS] == 120
    assert tallied(legacy, candidate, 0.1).differing[Kind.LOGITS] == 60


def test_a_noise_floor_judges_saved_records_under_its_conditions(tmp_path: Path) -> None:
    def stream(error: float, token: int) -> list[Event]:
        row = np.array([1.0, 2.0 + error, 2.0], np.float32)
        values = {Key(Kind.LOGITS, "a", "logits"): Row(row), Key(Kind.TOKENS, "a", "token"): token}
        return [Event(Point.DECODE, 0, values)]

    facts = {
        "model": "tiny",
        "dtype": "float32",
        "device": "cpu",
        "threads": "1",
        "page_size": "16",
        "torch": "2",
    }
    legacy, near, far = (
        written(tmp_path / name, stream(error, token), facts=tuple(facts.items()))
        for name, error, token in (("legacy", 1e-3, 1), ("near", -1e-3, 2), ("far", 0.5, 1))
    )
    floor, here = tmp_path / "noise.json", Conditions("tiny", "float32", "cpu", 1, 16, "2")
    bound = Bound(Class.THREADS, "logits", runs=3, steps=9, maximum=2e-3, margin=2.0, bit_equal=False)
    save(floor, NoiseFloor(here, (bound,)))

    def code(candidate: Path, *more: object) -> int:
        return main(["diff", str(legacy), str(candidate), *map(str, more)])

    judged = ("--noise", floor, "--pairing", "threads")
    assert code(near) == 1 and code(near, *judged) == 0, "the token is a near tie"
    assert code(far, *judged) == 1
    assert code(near, "--noise", floor) == 1, "no bound was measured for equal sides"
    save(floor, NoiseFloor(replace(here, threads=2), (bound,)))
    assert code(near, *judged) == 2
    assert (
        main(
            [
                "diff",
                str(written(tmp_path / "mute", [])),
                str(written(tmp_path / "other", [])),
                *map(str, judged),
            ]
        )
        == 2
    )


def test_what_one_record_leaves_out_by_its_content_is_no_difference(tmp_path: Path) -> None:
    logits = {Key(Kind.LOGITS, "a", "logits"): Row(np.ones(2, np.float32))}
    more = [replace(decode(i, a=i), values={**decode(i, a=i).values, **logits}) for i in range(3)]
    less = [decode(i, a=i) for i in range(3)]
    full = open_record(written(tmp_path / "full", more, content=("logits",)))
    assert tallied(full, open_record(written(tmp_path / "less", less))).total == 0
    same = open_record(written(tmp_path / "same", less, content=("logits",)))
    assert tallied(full, same).differing[Kind.LOGITS] == 3, "here it should have been there"


def test_records_of_different_requests_are_not_compared(tmp_path: Path) -> None:
    from shadow.record.writer import RecordWriter
    from tests.shadow.record.streams import header

    for name, prompt in (("a", (1, 2)), ("b", (1, 3))):
        writer = RecordWriter(tmp_path / name, header())
        writer.requests([("r", prompt)])
        writer.finish("done")
    legacy, candidate = (open_record(tmp_path / name) for name in ("a", "b"))
    check_comparable(legacy, legacy)
    with pytest.raises(RecordError, match=r"different requests \(requests\[0\]\[1\]\[1\]: 2 and 3\)"):
        check_comparable(legacy, candidate)
