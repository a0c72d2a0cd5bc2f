"""The gates ask the kernel where it can run, and find what they find without it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import Phase, given, settings

from shadow.experiment import arrays
from tests.shadow.device import scenarios
from tests.shadow.device.interpreted import Interpreter, plain
from tests.shadow.device.pairs import Pair, one_bit_apart, pairs


@settings(deadline=None, max_examples=60, phases=[Phase.explicit, Phase.generate])
@given(pair=pairs())
def test_a_gate_names_the_element_that_it_names_without_the_kernel(
    interpreted: Interpreter, pair: Pair
) -> None:
    found, asked = interpreted.run(scenarios.gate_finds, plain(pair[0]), plain(pair[1]))
    assert asked == 1
    assert found == arrays.first_unequal(*pair)


def test_an_element_far_back_is_named_by_its_index(interpreted: Interpreter) -> None:
    pair = one_bit_apart((5, 3, 1000), torch.bfloat16, 14_500)
    assert interpreted.run(scenarios.gate_finds, plain(pair[0]), plain(pair[1])) == ((4, 2, 500), 1)


def test_integers_are_compared_as_they_were(interpreted: Interpreter) -> None:
    assert interpreted.run(scenarios.gate_finds_in_integers) == ((2, 1), 0)


def test_on_the_cpu_the_kernel_is_not_even_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setitem(__import__("sys").modules, "shadow.device", None)  # an import of it would raise
    assert arrays.first_unequal(*one_bit_apart((2, 3), torch.float32, 4)) == (1, 1)
