from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shadow.diff import Nature, compare_events, diff_plain
from shadow.numerics import score_row
from shadow.observation import Digests, Event, Key, Kind, Observed, Point, Row
from shadow.plain import Opaque, Record, plain


class Colour(IntEnum):
    RED = 0


@dataclass(frozen=True)
class Step:
    uuids: tuple[str, ...]
    pages: int


def event(values: dict[Key, Observed]) -> Event:
    return Event(Point.DECODE, 7, values)


def row(*values: float) -> Row:
    return Row(np.array(values, dtype=np.float32))


def one(legacy: Observed, candidate: Observed, kind: Kind = Kind.SEQUENCE, field: str = "f") -> Any:
    key = Key(kind, "a", field)
    comparison = compare_events(event({key: legacy}), event({key: candidate}))
    assert len(comparison.mismatches) == 1
    return comparison.mismatches[0]


# plain trees


def test_plain_takes_a_snapshot_and_renames_uuids_everywhere() -> None:
    live = {"u1": [Step(("u1", "x"), 2)], "s": {"u2", "u1"}}
    tree = plain(live, {"u1": "req-1", "u2": "req-0"})
    live["u1"].append(1)
    step = Record("Step", (("uuids", ("req-1", "x")), ("pages", 2)))
    assert tree == Record("mapping", (("req-1", (step,)), ("s", ("req-0", "req-1"))))


def test_plain_reads_enums_by_name_and_small_integer_tensors_by_content() -> None:
    assert plain(Colour.RED) == "RED"
    tensor = plain(torch.tensor([[1, 2]], dtype=torch.int32))
    assert tensor == Record("Tensor", (("dtype", "torch.int32"), ("shape", (1, 2)), ("content", ((1, 2),))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_plain_tells_large_tensors_apart_by_a_single_bit(dtype: torch.dtype) -> None:
    base = torch.ones(100, dtype=dtype)
    other = base.clone()
    other[57] = 2
    assert plain(base) == plain(base.clone()) != plain(other)


def test_a_value_without_a_plain_form_is_reported_as_seen_by_type_only() -> None:
    key = Key(Kind.SEQUENCE, "a", "callback")
    legacy, candidate = event({key: plain(object())}), event({key: plain(object())})
    comparison = compare_events(legacy, candidate)
    assert comparison.opaque == {"callback"} and not comparison.mismatches
    assert not comparison.compared[Kind.SEQUENCE]
    assert one(plain(object()), plain(print)).nature is Nature.TYPE


# trees


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3).map(plain)
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(PLAIN)
def test_a_tree_equals_itself_and_something_was_compared(tree: Any) -> None:
    leaves, count, _ = diff_plain(tree, tree)
    assert not leaves
    assert count > 0 or tree == Record("mapping", ()) or "mapping" in repr(tree)


@settings(deadline=None)
@given(PLAIN, PLAIN)
def test_trees_that_differ_in_their_text_are_found_to_differ_from_both_sides(one: Any, two: Any) -> None:
    forth, back = diff_plain(one, two)[0], diff_plain(two, one)[0]
    assert bool(forth) == bool(back) == (repr(one) != repr(two))


def test_two_nan_are_no_difference_in_whatever_order_they_were_made() -> None:
    assert diff_plain((None, float("nan")), (None, float("nan")))[0] == []


def test_the_path_of_a_difference_goes_through_records_and_tuples() -> None:
    legacy, candidate = plain({"load": [Step(("a", "b"), 3)]}), plain({"load": [Step(("a", "c"), 3)]})
    assert diff_plain(legacy, candidate, "decisions")[0] == [
        ("decisions.load[0].uuids[1]", Nature.VALUE, "'b'", "'c'")
    ]


@pytest.mark.parametrize(
    ("legacy", "candidate", "nature"),
    [
        ((1, 2, 3), (1, 3, 2), Nature.ORDER),
        ((1, 2), (1, 2, 3), Nature.EXTRA),
        ((1, 2, 3), (1, 2), Nature.MISSING),
        (1, True, Nature.TYPE),
        (1, 1.0, Nature.TYPE),
        ((1,), (True,), Nature.TYPE),
        (0.0, -0.0, Nature.VALUE),
        ({"x": 1}, {"x": 1, "y": 2}, Nature.EXTRA),
        (Step((), 1), {"uuids": (), "pages": 1}, Nature.TYPE),
    ],
)
def test_natures_of_difference(legacy: Any, candidate: Any, nature: Nature) -> None:
    ((_, found, _, _),) = diff_plain(plain(legacy), plain(candidate))[0]
    assert found is nature


def test_equal_nan_is_equal() -> None:
    assert diff_plain(math.nan, math.nan)[0] == []


# events


def test_keys_of_one_side_only_are_findings_on_either_side() -> None:
    a, b = Key(Kind.SEQUENCE, "a", "status"), Key(Kind.SEQUENCE, "b", "status")
    comparison = compare_events(event({a: 1}), event({b: 1}))
    assert [(m.sequence, m.nature) for m in comparison.mismatches] == [
        ("a", Nature.MISSING),
        ("b", Nature.EXTRA),
    ]
    assert not comparison.compared


def test_findings_keep_the_order_in_which_the_values_came_about() -> None:
    keys = [Key(Kind.KV, "a", "k"), Key(Kind.LOGITS, "a", "l"), Key(Kind.TOKENS, "a", "t")]
    comparison = compare_events(event(dict.fromkeys(keys, 1)), event(dict.fromkeys(reversed(keys), 2)))
    assert [m.kind for m in comparison.mismatches] == [Kind.KV, Kind.LOGITS, Kind.TOKENS]


def test_counts_say_how_many_values_of_each_kind_were_compared() -> None:
    values: dict[Key, Observed] = {
        Key(Kind.LOGITS, "a", "logits"): row(1, 2, 3),
        Key(Kind.KV, "a", "k"): Digests(np.zeros((2, 5), dtype=np.int64), "page"),
        Key(Kind.PAGE_TABLE, "a", "pages"): (4, 5),
        Key(Kind.BOUNDARY, None, "decisions"): plain(Step((), 3)),
    }
    counts = compare_events(event(values), event(dict(values))).compared
    assert counts == Counter({Kind.LOGITS: 3, Kind.KV: 10, Kind.PAGE_TABLE: 2, Kind.BOUNDARY: 2})


def test_a_digest_difference_names_layer_page_and_positions() -> None:
    legacy = np.arange(12, dtype=np.int64).reshape(3, 4)
    candidate = legacy.copy()
    candidate[1, 2] = 0
    mismatch = one(
        Digests(legacy, "page", tokens=16), Digests(candidate, "page", tokens=16), Kind.KV, "gpu.k"
    )
    assert (mismatch.layer, mismatch.field, mismatch.detail) == (1, "gpu.k.page[2]", "positions 32 to 47")
    assert (mismatch.legacy, mismatch.candidate) == ("#0000000000000006", "all zero")


def test_shapes_that_differ_are_a_kind_of_their_own_and_not_counted_as_compared() -> None:
    key = Key(Kind.LOGITS, "a", "logits")
    comparison = compare_events(event({key: row(1, 2)}), event({key: row(1, 2, 3)}))
    assert comparison.mismatches[0].nature is Nature.SHAPE and not comparison.compared
    pages = one(Digests(np.zeros((2, 2), np.int64), "page"), Digests(np.zeros((2, 3), np.int64), "page"))
    assert pages.nature is Nature.SHAPE
    assert one(row(1), 1).nature is Nature.TYPE
    assert one(Opaque("x"), row(1)).nature is Nature.TYPE


def test_events_of_two_points_are_not_compared() -> None:
    with pytest.raises(ValueError, match="two points"):
        compare_events(event({}), Event(Point.END, 7, {}))


# rows of logits


def scored(legacy: list[float], candidate: list[float]) -> Any:
    return score_row(np.array(legacy, dtype=np.float32), np.array(candidate, dtype=np.float32))


def test_equal_bits_are_equal_even_when_they_are_nan_or_infinite() -> None:
    assert scored([1, math.nan, -math.inf], [1, math.nan, -math.inf]) is None


def test_signed_zeros_differ_with_no_error() -> None:
    score = scored([0, 1], [-0.0, 1])
    assert (score.differing, score.relative_l2, score.max_abs) == (1, 0.0, 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_on_one_side_never_pass_a_bound(bad: float) -> None:
    for score in (scored([1, 2], [1, bad]), scored([1, bad], [1, 2])):
        assert score.relative_l2 == score.max_abs == math.inf
        assert (score.differing, score.index) == (1, 1)


def test_a_mask_of_infinities_does_not_hide_a_finite_difference() -> None:
    score = scored([3, 4, -math.inf], [3, 4.5, -math.inf])
    assert score.max_abs == 0.5 and score.relative_l2 == pytest.approx(0.1)


def test_against_a_zero_row_any_error_is_infinite() -> None:
    assert scored([0, 0], [0, 1e-30]).relative_l2 == math.inf


def test_a_score_says_where_and_whether_the_argmax_moved() -> None:
    score = scored([1, 5, 2], [1, 0, 2])
    assert (score.index, score.differing, score.argmax, score.max_abs) == (1, 1, (1, 2), 5.0)


def test_rows_of_two_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="rows are"):
        scored([1], [1, 2])


@settings(deadline=None)
@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=20), st.floats(1e-3, 1.0))
def test_relative_l2_does_not_depend_on_the_scale_of_the_row(values: list[float], factor: float) -> None:
    legacy = np.array(values, dtype=np.float64).astype(np.float32)
    candidate = (legacy * np.float32(1 + factor)).astype(np.float32)
    score = score_row(legacy, candidate)
    if score is not None and np.abs(legacy).max() > 1e-20:
        assert score.relative_l2 == pytest.approx(factor, rel=1e-3, abs=1e-6)
