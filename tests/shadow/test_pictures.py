"""Pictures of a run, from events and differences made by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from reports import Bars, HeatMap, PageMap, Series, SideBySide
from reports.pictures import SHARED, Band
from shadow.diff import Comparison, Mismatch, Nature, compare_events
from shadow.messages import Done
from shadow.numerics import RowScore
from shadow.observation import Call, Calls, Digests, Event, Key, Kind, Pages, Point, Row
from shadow.pictures import draw
from shadow.pictures.album import Album, owners_of, sizes_of
from shadow.pictures.places import Places
from shadow.plain import Record
from shadow.tally import Tally

LAYERS = 4


def event(
    step: int, owned: dict[str, tuple[int, ...]], *, digest: int = 0, loaded: int = 3, logit: float = 1.0
) -> Event:
    digests = np.ones((LAYERS, 2), np.int64)
    digests[2:, 1] += digest
    plan = Record("Plan", (("load", (Record("Load", (("pages", (7, 8, 9)[:loaded]), ("kv_len", 64))),)),))
    return Event(
        Point.DECODE,
        step,
        {
            **{
                Key(Kind.PAGE_TABLE, name, "gpu.owned_pages"): Pages("gpu", ids)
                for name, ids in owned.items()
            },
            Key(Kind.PAGE_TABLE, None, "gpu.free_pages"): 16
            - len({p for ids in owned.values() for p in ids}),
            Key(Kind.KV, "a", "gpu.k"): Digests(digests, "page", 16),
            Key(Kind.BOUNDARY, None, "plan"): plan,
            Key(Kind.EFFECTS, None, "calls"): Calls((Call("free", (("a", 1),)),)),
            Key(Kind.LOGITS, "a", "row"): Row(np.array([1.0, logit], np.float32)),
        },
    )


def run(pairs: list[tuple[Event, Event]]) -> tuple[Album, Tally]:
    album, tally = Album(), Tally()
    for ours, theirs in pairs:
        album.watch(ours, theirs)
        tally.add(ours.point, album.scored(compare_events(ours, theirs)))
        assert album.note(tally) is False
    return album, tally


EQUAL = {"a": (1, 2), "b": (3,)}
PARTED = [
    (event(0, EQUAL), event(0, EQUAL)),
    (
        event(1, {"a": (1, 2), "b": (3, 4)}),
        event(1, {"a": (1, 2), "b": (3, 2)}, digest=5, loaded=2, logit=1.5),
    ),
    (event(2, EQUAL), event(2, EQUAL, digest=6)),
]


def test_a_run_that_parts_has_every_picture_with_the_first_divergence_marked() -> None:
    album, tally = run(PARTED)
    done = Done(3, 0.3, 0.03, 0.003)
    layers, logits, pages, plan, kinds, times = album.pictures(tally, (done, done), ("gpu", 2))
    assert isinstance(layers, HeatMap) and isinstance(logits, Series) and isinstance(pages, PageMap)
    assert isinstance(plan, SideBySide) and isinstance(kinds, HeatMap) and isinstance(times, Bars)
    assert [row[:3] for row in layers.cells] == [(0, 0, 0), (0, 0, 0), (0, 1, 1), (0, 1, 1)]
    assert kinds.marked is not None
    first = tally.first
    assert first is not None
    assert (kinds.rows.labels[kinds.marked[0]], kinds.marked[1]) == (first.kind.value, first.step == 1)
    assert times.rows[0].values == (100.0, 10.0, 1.0)


def test_pages_are_shown_before_and_as_the_sides_parted() -> None:
    album, tally = run(PARTED)
    (pages,) = (
        picture for picture in album.pictures(tally, guilty=("gpu", 2)) if isinstance(picture, PageMap)
    )
    before, legacy, candidate = pages.frames
    assert [frame.name for frame in pages.frames] == ["legacy, before", "legacy, step 1", "candidate, step 1"]
    assert (pages.pages, pages.marked, pages.owners) == (16, 2, ("a", "b"))
    assert before.cells[:5] == (-1, 0, 0, 1, -1) and legacy.cells[4] == 1 and candidate.cells[4] == -1
    assert candidate.cells[2] == SHARED and (candidate.shared, legacy.shared) == (1, 0)


def test_pages_that_nobody_disputes_are_not_drawn_unless_one_is_guilty() -> None:
    album, tally = run([(event(0, EQUAL), event(0, EQUAL, digest=1))])
    assert not [p for p in album.pictures(tally) if isinstance(p, PageMap)]
    assert [p.marked for p in album.pictures(tally, guilty=("gpu", 3)) if isinstance(p, PageMap)] == [3]


def test_the_plan_that_differs_is_shown_whole() -> None:
    album, tally = run(PARTED)
    (plan,) = (picture for picture in album.pictures(tally) if isinstance(picture, SideBySide))
    assert plan.title == "Boundary at decode, step 1" and (plan.total, plan.differing) == (2, 1)
    assert [(row.path, row.left, row.right) for row in plan.rows] == [
        ("plan.load[0].pages", "(7, 8, 9)", "(7, 8)"),
        ("plan.load[0].kv_len", "64", "64"),
    ]


def test_calls_and_pages_of_a_plan_are_shown_as_text() -> None:
    ours = {"calls": Calls((Call("free", (("a", 1),)), Call("give"))), "row": Pages("gpu", (1, 2))}
    plan = draw.plans("t", ours, {"calls": Calls((Call("free", (("a", 1),)),))})
    assert [(row.path, row.left, row.right) for row in plan.rows] == [
        ("calls[0]", "free(a: 1)", "free(a: 1)"),
        ("calls[1]", "give()", None),
        ("row", "1, 2", None),
    ]


def test_the_logits_series_tells_equal_from_not_compared() -> None:
    band = Band("noise floor", 0.0, 1e-6)
    picture = draw.logits_error({2: 0.5}, {0, 2}, 4, band, 2)
    assert [(span.low, span.count) for span in picture.lines[0].spans] == [
        (0.0, 1),
        (None, 0),
        (0.5, 1),
        (None, 0),
    ]
    assert picture.band == band and picture.marked == 2


def test_an_equal_run_shows_what_was_compared_when() -> None:
    album, tally = run(PARTED[:1])
    (kinds,) = album.pictures(tally)
    assert isinstance(kinds, HeatMap) and kinds.marked is None
    assert kinds.rows.labels == tuple(kind.value for kind in Kind if kind in album.kinds)
    assert all(row == (0,) for row in kinds.cells)


def test_a_finding_after_the_last_events_still_has_a_place() -> None:
    album, tally = run(PARTED[:1])
    tally.find(Mismatch(Kind.OUTCOME, Nature.VALUE, Point.END, 7, None, None, "outcome", "done", "raised"))
    (kinds,) = album.pictures(tally)
    assert isinstance(kinds, HeatMap) and kinds.marked == (len(kinds.rows.labels) - 1, 7)


def test_a_run_without_events_has_no_pictures() -> None:
    assert Album().pictures(Tally()) == ()


@pytest.mark.parametrize("steps", [10_000])
def test_places_count_every_difference_of_a_long_run(steps: int) -> None:
    places = Places()
    for step in range(0, steps, 50):
        for layer in range(60):
            places.add(Mismatch(Kind.KV, Nature.VALUE, Point.DECODE, step, "a", layer, "k", "1", "2"))
    picture = draw.layers_by_step(places.by_layer, {}, steps, (3, 50))
    assert sum(count or 0 for row in picture.cells for count in row) == 60 * steps // 50
    assert picture.note == "first divergence (at decode step 50, layer 3)"


def test_owners_and_sizes_come_from_what_an_event_says() -> None:
    seen = event(0, {"a": (1, 2), "b": (2, 30)})
    owners = owners_of(seen)
    assert owners == {"gpu": {1: ("a",), 2: ("a", "b"), 30: ("b",)}}
    assert sizes_of(seen, owners) == {"gpu": 31}
    assert sizes_of(event(0, EQUAL), owners_of(event(0, EQUAL))) == {"gpu": 16}


def test_modules_of_one_side_only_are_listed_too() -> None:
    table = draw.modules({"m": "m.py"}, {"m": "m.py", "n": "n.py"})
    assert table.rows == (("m", "m.py", "m.py"), ("n", "-", "n.py"))


def test_the_error_of_logits_within_noise_is_drawn_too() -> None:
    album = Album()
    pair = (event(0, EQUAL), event(0, EQUAL, logit=1.0 + 1e-6))
    album.watch(*pair)
    found = compare_events(*pair)
    assert album.scored(found) is found
    logits, kinds = album.pictures(Tally(), band=Band("noise floor", 0.0, 1e-5))
    assert isinstance(logits, Series) and isinstance(kinds, HeatMap)
    assert logits.lines[0].spans[0].high == pytest.approx(6.7e-7, rel=0.1)
    assert logits.marked is None
    score = RowScore(1, 0, 0.1, 0.25, (0, 0))
    worse = Mismatch(Kind.LOGITS, Nature.NUMERIC, Point.DECODE, 0, "b", None, "logits", "1", "2", score)
    album.scored(Comparison(Counter(), (worse, *found.mismatches), frozenset()))
    assert album.worst == {0: 0.25}
