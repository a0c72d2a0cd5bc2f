"""Pairs of tensors that are hard to compare."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import strategies as st

from shadow.device import RowStatistics
from shadow.device.bits import bits

Pair = tuple[torch.Tensor, torch.Tensor]

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
_LENGTHS = [0, 1, 2, 3, 7, 16, 33, 64, 100, 128, 129, 1000, 2047, 2048, 2049, 4097]
_SPECIAL = [
    0.0,
    -0.0,
    math.nan,
    -math.nan,
    math.inf,
    -math.inf,
    1e-45,
    -1e-38,
    3.3e38,
    -3.3e38,
    2.0**126,
    1e-20,
]


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """Any shape and dtype; numbers of any size, some of them special on one side or on both; equal rows too."""
    lead = draw(st.sampled_from([(), (0,), (1,), (3,), (5,), (2, 3), (4, 1), (0, 2), (1, 2, 2)]))
    shape = (*lead, draw(st.sampled_from(_LENGTHS)))
    dtype = draw(st.sampled_from(DTYPES))
    made = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale, noise = 10.0 ** made.uniform(-40, 38), 10.0 ** made.uniform(-9, 1)
    control = torch.from_numpy(made.standard_normal(shape) * scale)
    candidate = control * (1 + noise * torch.from_numpy(made.standard_normal(shape)))
    if made.random() < 0.3:
        equal = torch.from_numpy(made.random((*lead, 1)) < 0.5)
        candidate = torch.where(equal, control, candidate)
    control, candidate = control.to(dtype), candidate.to(dtype)
    if made.random() < 0.6 and control.numel():
        for _ in range(made.integers(1, 6)):
            at = made.integers(control.numel())
            sides = [(control, candidate), (control,), (candidate,)][made.integers(3)]
            value = made.choice(_SPECIAL)
            for side in sides:
                side.reshape(-1)[at] = value
    return control, candidate


def one_bit_apart(shape: tuple[int, ...], dtype: torch.dtype, at: int) -> Pair:
    """Equal but for the last place of one element."""
    control = torch.linspace(1, 2, math.prod(shape)).reshape(shape).to(dtype)
    candidate = control.clone()
    bits(candidate).reshape(-1)[at] += 1
    return control, candidate


def assert_same(found: RowStatistics, expected: RowStatistics) -> None:
    for name in ("first", "differing", "one_side", "both_sides"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name, strict=True)
    for name, within in (("squared_error", 1e-5), ("squared_norm", 1e-5), ("max_abs", 1e-6)):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), within, 0, err_msg=name, strict=True
        )
    assert found.elements == expected.elements
