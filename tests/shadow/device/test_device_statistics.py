"""The kernel against operations of torch in float64, and both against the scores of the host."""

from __future__ import annotations

import logging
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings

from shadow.device import Ring, RowStatistics, Unavailable, availability, compare_rows, unavailable
from shadow.device.reference import reference
from shadow.numerics import from_torch, score_rows
from tests.shadow.device.interpreted import Interpreter
from tests.shadow.device.pairs import DTYPES, Pair, assert_same, one_bit_apart, pairs


def assert_lawful(found: RowStatistics, pair: Pair) -> None:
    """The same scores as those of the host."""
    control, candidate = map(from_torch, pair)
    scores, expected = found.scores(), score_rows(control, candidate)
    np.testing.assert_array_equal(scores.differs, expected.differs, strict=True)
    np.testing.assert_allclose(scores.relative_l2, expected.relative_l2, rtol=1e-5, atol=0, strict=True)
    assert scores.elements == expected.elements
    assert scores.equal == expected.equal


@settings(deadline=None, max_examples=200, phases=[Phase.explicit, Phase.generate])
@given(pair=pairs())
def test_the_kernel_finds_what_torch_finds_and_scores_as_the_host_does(
    interpreted: Interpreter, pair: Pair
) -> None:
    found = interpreted.compare_rows(*pair)
    assert_same(found, reference(*pair))
    assert_lawful(found, pair)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("shape", "at"), [((3, 2, 128), 700), ((1, 5000), 4999), ((4100, 1), 4099), ((7,), 0)]
)
def test_one_element_that_differs_in_its_last_place_is_found(
    interpreted: Interpreter, shape: tuple[int, ...], at: int, dtype: torch.dtype
) -> None:
    pair = one_bit_apart(shape, dtype, at)
    found = interpreted.compare_rows(*pair)
    assert found.first_flat() == at and found.differing.sum() == 1
    assert_same(found, reference(*pair))
    assert_lawful(found, pair)


@pytest.mark.parametrize(
    ("control", "candidate", "error", "one", "both"),
    [
        ([math.nan, 1.0], [math.nan, 1.0], 0.0, 0, 1),
        ([math.inf, 1.0], [math.inf, 2.0], 1.0, 0, 1),
        ([math.inf, 1.0], [-math.inf, 1.0], math.inf, 0, 1),
        ([math.nan, 1.0], [math.inf, 1.0], math.inf, 0, 1),
        ([1.0, 1.0], [math.nan, 1.0], math.inf, 1, 0),
        ([-math.inf, 1.0], [1.0, 1.0], math.inf, 1, 0),
        ([0.0, 1.0], [-0.0, 1.0], 0.0, 0, 0),
        ([3e38, 1.0], [-3e38, 1.0], 6e38, 0, 0),
        ([1e-45, 0.0], [0.0, 0.0], 1e-45, 0, 0),
    ],
)
def test_special_values_follow_the_policy(
    interpreted: Interpreter, control: list[float], candidate: list[float], error: float, one: int, both: int
) -> None:
    pair = torch.tensor([control]), torch.tensor([candidate])
    found = interpreted.compare_rows(*pair)
    assert found.max_abs[0] == pytest.approx(error, rel=0.3 if error == 1e-45 else 1e-6)
    assert (found.one_side[0], found.both_sides[0]) == (one, both)
    assert_same(found, reference(*pair))
    assert_lawful(found, pair)


def test_a_nan_with_other_bits_is_a_difference(interpreted: Interpreter) -> None:
    control = torch.tensor([[math.nan, 1.0]])
    candidate = control.clone()
    candidate.view(torch.int32)[0, 0] ^= 1
    found = interpreted.compare_rows(control, candidate)
    assert found.first.tolist() == [0] and found.scores().relative_l2.tolist() == [math.inf]


@pytest.mark.parametrize(
    ("control", "candidate"),
    [
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.float16)),
        (torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.float64)),
        (torch.tensor(1.0), torch.tensor(1.0)),
    ],
)
def test_what_cannot_be_compared_is_refused_with_or_without_the_kernel(
    interpreted: Interpreter, control: torch.Tensor, candidate: torch.Tensor
) -> None:
    with pytest.raises(ValueError, match=r"rows"):
        compare_rows(control, candidate)
    with pytest.raises(ValueError, match=r"rows"):
        interpreted.run(compare_rows, control, candidate)


# where the kernel cannot run


def test_without_triton_the_same_is_found_by_torch_and_the_reason_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(availability, "find_spec", lambda _name: None)
    availability._said.cache_clear()
    pair = one_bit_apart((2, 3, 5), torch.bfloat16, 11)
    with caplog.at_level(logging.WARNING):
        assert_same(compare_rows(*pair), reference(*pair))
        compare_rows(*pair)
    assert [record.message.count("triton is not installed") for record in caplog.records] == [1]
    with pytest.raises(Unavailable, match=r"triton is not installed"):
        Ring(pair[0])


def test_tensors_of_the_cpu_are_none_of_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    reason = unavailable(torch.device("cpu"))
    assert reason is not None and "the tensors are on cpu" in reason


def test_importing_it_loads_neither_torch_nor_triton() -> None:
    code = "import sys, shadow.device\nprint({'torch', 'triton', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
