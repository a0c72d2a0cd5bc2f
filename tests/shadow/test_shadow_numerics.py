"""Scores against a plain float64 reference that knows nothing of blocks, segments or words."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shadow.numerics import Bfloat16, Floats, from_torch, score_row, score_rows

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


def wide(values: Floats) -> np.ndarray:
    if isinstance(values, Bfloat16):
        return torch.from_numpy(values.bits.view(np.int16)).view(torch.bfloat16).double().numpy()
    return values.astype(np.longdouble)


def bits(values: Floats) -> np.ndarray:
    raw = values.bits if isinstance(values, Bfloat16) else values
    return raw.view(f"u{raw.dtype.itemsize}")


def reference(legacy: Floats, candidate: Floats) -> tuple[np.ndarray, np.ndarray]:
    """(relative L2, whether bits differ) by the words of the policy, one row at a time."""
    a, b, unequal = wide(legacy), wide(candidate), bits(legacy) != bits(candidate)
    scores, differs = np.zeros(a.shape[:-1]), unequal.any(axis=-1)
    for at in np.ndindex(a.shape[:-1]):
        x, y, moved = a[at], b[at], unequal[at]
        if not np.isfinite(np.concatenate((x[moved], y[moved]))).all():
            scores[at] = math.inf
            continue
        error = np.sqrt(((y[moved] - x[moved]) ** 2).sum())
        length = np.sqrt((x[np.isfinite(x)] ** 2).sum())
        if error:
            scores[at] = float(error / length) if length else math.inf
    return scores, differs


def assert_scored(legacy: Floats, candidate: Floats, threads: int = 1) -> None:
    scores = score_rows(legacy, candidate, threads=threads)
    expected, differs = reference(legacy, candidate)
    np.testing.assert_array_equal(scores.differs, differs)
    np.testing.assert_allclose(scores.relative_l2, expected, rtol=1e-5, atol=0)
    assert scores.elements == math.prod(legacy.shape)


def tensors(shape: tuple[int, ...], dtype: torch.dtype, noise: float, seed: int) -> tuple[Floats, Floats]:
    generator = torch.Generator().manual_seed(seed)
    legacy = torch.randn(shape, generator=generator, dtype=torch.float64)
    moved = legacy * (1 + noise * torch.randn(shape, generator=generator, dtype=torch.float64))
    return from_torch(legacy.to(dtype)), from_torch(moved.to(dtype))


# against the reference


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 151), (2, 8192), (2, 8193), (3, 24577), (2, 151936), (70, 32, 128)])
def test_scores_equal_a_plain_reference(shape: tuple[int, ...], dtype: str) -> None:
    legacy, candidate = tensors(shape, DTYPES[dtype], 1e-2, seed=1)
    assert_scored(legacy, candidate)
    assert_scored(legacy, candidate, threads=3)


@pytest.mark.parametrize("noise", [1e-7, 1e-6, 1e-3, 10.0])
def test_small_errors_are_scored_as_exactly_as_large_ones(noise: float) -> None:
    assert_scored(*tensors((4, 40000), torch.float32, noise, seed=2))


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([(1, 1), (3000, 33), (700, 257), (5, 16386), (2, 90001)]),
    st.sampled_from([torch.bfloat16, torch.float16]),
    st.floats(-7, 1),
    st.floats(-3, 3),
    st.integers(0, 2**32 - 1),
)
def test_narrow_types_are_scored_as_in_float64_over_many_blocks(
    shape: tuple[int, int], dtype: torch.dtype, noise: float, scale: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    legacy = 10**scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    moved = legacy * (1 + 10**noise * torch.randn(shape, generator=generator, dtype=torch.float64))
    legacy[
        :: 1 + seed % 5
    ] *= -3  # runs of rows that differ in length and, where noise rounds away, not in bits
    assert_scored(from_torch(legacy.to(dtype)), from_torch(moved.to(dtype)), threads=1 + seed % 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("first", "second", "shift"), [(0, 1, 0), (1, 0, 0), (0, 1, 1), (1, 0, 1), (0, 0, 0)]
)
def test_tensors_may_lie_anywhere_in_memory(first: int, second: int, shift: int, dtype: str) -> None:
    """One behind the other either way, the same one, and at an odd address."""
    pair = tensors((300, 500), DTYPES[dtype], 1e-2, seed=5)
    size = bits(pair[0]).nbytes + 16
    memory = np.zeros(2 * size, np.uint8)

    def placed(values: Floats, place: int, offset: int) -> Floats:
        raw = bits(values)
        room = memory[place * size + offset :][: raw.nbytes].view(raw.dtype).reshape(raw.shape)
        room[:] = raw
        return Bfloat16(room) if isinstance(values, Bfloat16) else room.view(values.dtype)

    legacy, candidate = placed(pair[0], first, 0), placed(pair[1], second, shift)
    assert score_rows(legacy, candidate).differs.all() == (first != second)
    assert_scored(legacy, candidate, threads=2)


SPECIAL = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e-38, 3e38, -3e38, 1e-45, 1.0, -2.5, 1e-20]


@st.composite
def awkward_pairs(draw: st.DrawFn) -> tuple[Floats, Floats]:
    shape = draw(st.sampled_from([(1,), (3, 1), (2, 5), (2, 3, 4), (5, 2, 3), (0, 4), (3, 0)]))
    dtype = DTYPES[draw(st.sampled_from(sorted(DTYPES)))]
    count = math.prod(shape)
    value = st.one_of(st.sampled_from(SPECIAL), st.floats(-1e30, 1e30))
    legacy = draw(st.lists(value, min_size=count, max_size=count))
    changed = draw(st.lists(st.one_of(st.none(), value), min_size=count, max_size=count))
    candidate = [old if new is None else new for old, new in zip(legacy, changed, strict=True)]
    sides = (torch.tensor(side, dtype=torch.float64).reshape(shape) for side in (legacy, candidate))
    ours, theirs = (from_torch(side.to(dtype)) for side in sides)
    return ours, theirs


@settings(deadline=None, max_examples=400)
@given(awkward_pairs())
@example((np.array([[1.9e-143]]), np.array([[3e38]])))  # squares whose ratio is no float64
def test_every_special_value_follows_the_policy(pair: tuple[Floats, Floats]) -> None:
    assert_scored(*pair)
    if len(pair[0].shape) == 1 and pair[0].shape[0]:
        row, scores = score_row(*pair), score_rows(*pair)
        assert (row is None) == scores.equal
        assert row is None or row.relative_l2 == pytest.approx(float(scores.relative_l2), rel=1e-5)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 20000), st.sampled_from(sorted(DTYPES)), st.data())
@example(8193, "bfloat16", None)
def test_one_changed_element_is_found_wherever_it_is(
    length: int, dtype: str, data: st.DataObject | None
) -> None:
    at = length - 1 if data is None else data.draw(st.integers(0, length - 1))
    legacy = torch.linspace(1, 2, length).to(DTYPES[dtype])[None].repeat(2, 1)
    candidate = legacy.clone()
    candidate[1, at] *= 2
    scores = score_rows(from_torch(legacy), from_torch(candidate))
    assert scores.differs.tolist() == [False, True] and scores.worst == (1,)
    assert_scored(from_torch(legacy), from_torch(candidate))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_scores_do_not_depend_on_the_number_of_threads(seed: int, threads: int) -> None:
    legacy, candidate = tensors((7, 3, 50), torch.float32, 1e-3, seed)
    one, some = score_rows(legacy, candidate), score_rows(legacy, candidate, threads=threads)
    assert one.relative_l2.tolist() == some.relative_l2.tolist()


# the policy, named


def rows(*values: float, dtype: str = "float32") -> np.ndarray:
    return np.array([values], dtype=dtype)


def test_one_garbage_head_is_named_though_the_tensor_hardly_moves() -> None:
    legacy, candidate = (np.array(side) for side in tensors((64, 32, 128), torch.float32, 1e-6, seed=3))
    candidate[17, 5] = -candidate[17, 5]
    scores = score_rows(legacy, candidate)
    assert scores.worst == (17, 5)
    assert scores.maximum == pytest.approx(2.0, rel=1e-4)
    assert np.sort(scores.relative_l2.ravel())[-2] < 1e-5


def test_equal_bits_are_equal_even_where_they_are_no_numbers() -> None:
    same = rows(math.nan, math.inf, 1.0)
    scores = score_rows(same, same.copy())
    assert scores.equal and scores.worst is None and scores.maximum == 0.0


def test_a_nan_with_other_bits_is_a_difference() -> None:
    other = rows(math.nan, 1.0)
    other.view(np.uint32)[0, 0] ^= 1
    assert score_rows(rows(math.nan, 1.0), other).relative_l2.tolist() == [math.inf]


def test_signed_zeros_differ_with_score_zero_and_are_the_worst_row_where_nothing_else_differs() -> None:
    scores = score_rows(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [1.0, -0.0]]))
    assert scores.differs.tolist() == [False, True]
    assert scores.relative_l2.tolist() == [0.0, 0.0] and scores.worst == (1,)


def test_a_mask_of_infinities_on_both_sides_hides_nothing_and_adds_nothing() -> None:
    scores = score_rows(rows(3, 4, -math.inf), rows(3, 4.5, -math.inf))
    assert scores.relative_l2.tolist() == [pytest.approx(0.1)]


def test_rows_that_underflow_when_squared_are_scored_all_the_same() -> None:
    legacy = np.full((2, 3), 1e-30, dtype=np.float32)
    candidate = legacy * np.array([[1], [2]], dtype=np.float32)
    assert score_rows(legacy, candidate).relative_l2.tolist() == [0.0, 1.0]
    huge = np.full((1, 3), 1e300)
    assert score_rows(huge, -huge).relative_l2.tolist() == [2.0]


def test_many_heads_without_length_are_scored_too() -> None:
    legacy = np.zeros((9000, 2, 64), dtype=np.float32)
    candidate = legacy.copy()
    candidate[:, 1, 3] = 1.0
    scores = score_rows(legacy, candidate)
    assert scores.relative_l2[:, 0].max() == 0.0 and scores.relative_l2[:, 1].min() == math.inf


@pytest.mark.parametrize(
    ("legacy", "candidate", "said"),
    [
        (rows(1), rows(1, 2), r"rows are float32\[1, 1\] and float32\[1, 2\]"),
        (rows(1), rows(1, dtype="float64"), "rows are float32.* and float64"),
        (Bfloat16(np.zeros((1, 1), np.uint16)), rows(1, dtype="float16"), "rows are bfloat16"),
        (rows(1, dtype="int32"), rows(1, dtype="int32"), "int32 values are compared exactly"),
        (np.float32(1).reshape(()), np.float32(1).reshape(()), "a scalar has no rows"),
    ],
)
def test_what_cannot_be_scored_is_refused(legacy: Floats, candidate: Floats, said: str) -> None:
    for call in (score_rows, score_row):
        with pytest.raises(ValueError, match=said):
            call(legacy, candidate)


def test_bfloat16_is_given_as_its_bits() -> None:
    with pytest.raises(ValueError, match="bits are uint16, not int16"):
        Bfloat16(np.zeros(3, np.int16))


@pytest.mark.parametrize("shape", [(0, 5), (4, 0), (0, 0), (2, 0, 3), (2, 3, 0)])
def test_empty_tensors_are_equal_and_count_nothing(shape: tuple[int, ...]) -> None:
    scores = score_rows(np.zeros(shape), np.ones(shape))
    assert scores.equal and scores.elements == 0 and scores.maximum == 0.0
    assert scores.differs.shape == shape[:-1]


def test_tensors_are_read_in_place_whatever_their_strides() -> None:
    base = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    moved = base + np.float32(1e-3)
    assert_scored(base.T, moved.T)
    tensor = torch.arange(6.0).reshape(2, 3)
    assert np.shares_memory(from_torch(tensor), tensor.numpy())


def test_a_row_in_bfloat16_is_shown_like_any_other() -> None:
    legacy = from_torch(torch.tensor([1.0, 5.0, 2.0], dtype=torch.bfloat16))
    score = score_row(legacy, from_torch(torch.tensor([1.0, 0.0, 2.0], dtype=torch.bfloat16)))
    assert score is not None
    assert (score.index, score.differing, score.argmax, score.max_abs) == (1, 1, (1, 2), 5.0)


def test_scoring_needs_no_torch() -> None:
    code = "import sys, numpy, shadow.numerics as n\nn.score_rows(numpy.ones((2, 3)), numpy.zeros((2, 3)))\n"
    done = subprocess.run([sys.executable, "-c", f"{code}print('torch' in sys.modules)"], capture_output=True)
    assert done.stdout.split() == [b"False"], done.stderr
