from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from batchgen.cuda_graph import CompareFailure, CompareReport, compare_outputs

INF, NAN = float("inf"), float("nan")


def compare(graph: dict[str, Tensor], eager: dict[str, Tensor], atol: float = 1e-2) -> CompareReport:
    return compare_outputs(graph, eager, atol=atol, rtol=1e-2)


def test_equal_outputs_pass_and_say_how_much_was_compared() -> None:
    outputs = {"logits": torch.arange(6.0).view(2, 3), "kv_k": torch.ones(3, 2, 1, 4)}
    report = compare(outputs, {key: value.clone() for key, value in outputs.items()})
    assert report.passed and report.values == 30 and report.max_abs == 0
    assert report.compared_keys == ("logits", "kv_k") and "30 values" in str(report)


@pytest.mark.parametrize(
    ("key", "shape"), [("logits", (4, 5)), ("kv_k", (3, 4, 2, 5)), ("kv_aux", (3, 4, 5))]
)
def test_one_wrong_element_fails_and_names_its_row(key: str, shape: tuple[int, ...]) -> None:
    eager = torch.ones(shape)
    graph = eager.clone()
    index = (2, 3) if key == "logits" else (1, 2, *([0] * (len(shape) - 3)), 3)
    graph[index] = 1.5
    report = compare({key: graph}, {key: eager})
    assert not report.passed and report.mismatched_keys == (key,) and report.max_abs == 0.5
    (row,) = report.rows
    assert (row.key, row.row, row.graph, row.eager) == (key, 2, 1.5, 1.0) and row.score == pytest.approx(25)
    assert f"{key} row 2: replay 1.5, eager 1" in str(report)


def test_a_large_absolute_error_that_is_small_against_the_value_passes_and_a_relative_one_near_zero_too() -> (
    None
):
    assert compare({"x": torch.tensor([1000.5])}, {"x": torch.tensor([1000.0])}).passed
    assert compare({"x": torch.tensor([0.005])}, {"x": torch.tensor([0.0])}).passed


@pytest.mark.parametrize(
    ("graph", "eager"),
    [
        (
            1.0,
            1.1,
        ),  # absolute error large, relative error not above ten times rtol: both need not be exceeded
        (100.0, 102.0),
        (NAN, 1.0),
        (1.0, NAN),
        (NAN, NAN),
        (INF, 1.0),
        (1.0, INF),
        (INF, -INF),
    ],
)
def test_a_value_out_of_tolerance_or_not_a_number_fails(graph: float, eager: float) -> None:
    report = compare({"x": torch.tensor([[0.0], [graph]])}, {"x": torch.tensor([[0.0], [eager]])})
    assert not report.passed and [row.row for row in report.rows] == [1]


def test_a_shared_infinity_passes() -> None:
    report = compare({"x": torch.tensor([INF, 1.0])}, {"x": torch.tensor([INF, 1.0])})
    assert report.passed and report.max_abs == 0


@pytest.mark.parametrize(
    ("graph", "eager"),
    [
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.zeros(2, 3), torch.zeros(1, 3)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
    ],
)
def test_another_shape_or_dtype_fails(graph: Tensor, eager: Tensor) -> None:
    report = compare({"x": graph, "y": torch.ones(1)}, {"x": eager, "y": torch.ones(1)})
    assert not report.passed and report.mismatched_keys == ("x",) and "x is torch.float32" in str(report)


def test_a_key_on_one_side_only_fails_from_either_side() -> None:
    one, two = {"x": torch.ones(2)}, {"x": torch.ones(2), "probe": torch.ones(2)}
    lacking, extra = compare(one, two), compare(two, one)
    assert not lacking.passed and lacking.missing_graph_keys == ("probe",)
    assert not extra.passed and extra.missing_eager_keys == ("probe",)
    assert "the replay lacks probe" in str(lacking) and "the eager run lacks probe" in str(extra)


@pytest.mark.parametrize(
    ("graph", "eager"),
    [({}, {}), ({"a": torch.ones(1)}, {"b": torch.ones(1)}), ({"a": torch.ones(0)}, {"a": torch.ones(0)})],
)
def test_comparing_nothing_is_not_a_pass(graph: dict[str, Tensor], eager: dict[str, Tensor]) -> None:
    report = compare(graph, eager)
    assert not report.passed and "no value was compared" in str(report)


def test_zero_tolerances_mean_equality() -> None:
    value = torch.tensor([1.0, 0.0])
    assert compare_outputs({"x": value}, {"x": value.clone()}, atol=0, rtol=0).passed
    off = compare_outputs({"x": value}, {"x": torch.nextafter(value, value + 1)}, atol=0, rtol=0)
    assert not off.passed and off.rows[0].score == INF


def test_probe_results_are_given_per_layer() -> None:
    graph = {"hidden_states_layer_3": torch.tensor([[1.0, 2.0]]), "hidden_states_layer_10": torch.ones(1, 2)}
    eager = {"hidden_states_layer_3": torch.tensor([[1.0, 2.5]]), "hidden_states_layer_10": torch.ones(1, 2)}
    report = compare(graph, eager)
    assert report.probe_results == {3: 0.5, 10: 0.0} and report.mismatched_keys == ("hidden_states_layer_3",)


def test_a_failed_report_is_raised_only_where_asked_for() -> None:
    with pytest.raises(CompareFailure, match="x row 0") as caught:
        compare_outputs(
            {"x": torch.ones(1)}, {"x": torch.zeros(1)}, atol=0.1, rtol=0.1, fail_on_mismatch=True
        )
    assert caught.value.report.mismatched_keys == ("x",)
    assert compare_outputs(
        {"x": torch.ones(1)}, {"x": torch.ones(1)}, atol=0, rtol=0, fail_on_mismatch=True
    ).passed


def test_the_worst_rows_come_first_and_a_long_list_is_cut_short() -> None:
    report = compare({"x": torch.arange(8.0)[:, None]}, {"x": torch.zeros(8, 1)})
    assert [row.row for row in report.rows] == [7, 6, 5, 4, 3, 2, 1] and "and 3 more rows" in str(report)


values = st.one_of(st.floats(-4, 4, width=32), st.sampled_from([0.0, INF, -INF, NAN]))


@settings(deadline=None)
@given(st.lists(st.tuples(values, values), min_size=1, max_size=12))
def test_the_verdict_of_each_row_is_the_elementwise_rule(pairs: list[tuple[float, float]]) -> None:
    graph, eager = torch.tensor(pairs).T
    report = compare_outputs({"x": graph}, {"x": eager}, atol=0.25, rtol=0.125)
    expected = [
        i
        for i, (g, e) in enumerate(pairs)
        if not (g == e or (abs(e) != INF and abs(g - e) <= 0.25 + 0.125 * abs(e)))
    ]
    assert sorted(row.row for row in report.rows) == expected and report.passed == (not expected)
