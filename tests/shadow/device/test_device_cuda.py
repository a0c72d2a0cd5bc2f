"""The compiled kernel, real streams and a captured graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import Phase, given, settings

from shadow.device import Late, Ring, compare_rows
from shadow.device.reference import reference
from shadow.experiment import arrays
from tests.shadow.device.pairs import DTYPES, Pair, assert_same, one_bit_apart, pairs
from tests.shadow.device.scenarios import SHAPE, at_step

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def moved(pair: Pair) -> Pair:
    return pair[0].cuda(), pair[1].cuda()


@contextmanager
def no_host_sync() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def assert_all(found: list[Late], steps: int) -> None:
    assert [late.step for late in found] == list(range(steps))
    for late in found:
        assert_same(late.rows, reference(*at_step(late.step)))


@settings(deadline=None, max_examples=200, phases=[Phase.explicit, Phase.generate])
@given(pair=pairs())
def test_the_compiled_kernel_finds_what_torch_finds(pair: Pair) -> None:
    assert_same(compare_rows(*moved(pair)), reference(*pair))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_large_tensor_is_compared_to_its_last_element(dtype: torch.dtype) -> None:
    pair = moved(one_bit_apart((64, 151936), dtype, 64 * 151936 - 1))
    assert_same(compare_rows(*pair), reference(*pair))


def test_a_step_is_compared_without_host_sync_or_allocation_and_read_late() -> None:
    steps = [moved(at_step(step)) for step in range(9)]
    ring = Ring(steps[0][0])
    ring.compare(*steps[0])
    ring.restart()
    torch.cuda.synchronize()
    allocations = torch.cuda.memory_stats()["allocation.all.allocated"]
    found: list[Late] = []
    with no_host_sync():
        for step, pair in enumerate(steps):
            ring.compare(*pair)
            arrived = ring.turn()
            assert all(late.step < step for late in arrived)
            found += arrived
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == allocations
    assert_all([*found, *ring.drain()], 9)


def test_a_captured_comparison_goes_on_to_the_next_slot_with_each_replay() -> None:
    steps = [moved(at_step(step)) for step in range(5)]
    control, candidate = (side.clone() for side in steps[0])
    ring = Ring(control, slots=2)
    ring.compare(control, candidate)  # builds the kernels: that cannot be captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ring.compare(control, candidate)
    ring.restart()
    torch.cuda.synchronize()
    found: list[Late] = []
    for given_control, given_candidate in steps:
        with no_host_sync():
            control.copy_(given_control)
            candidate.copy_(given_candidate)
            graph.replay()
        found += ring.turn()  # of two slots: it may have to wait
    assert_all([*found, *ring.drain()], 5)


def test_replays_and_their_turns_need_no_host_sync() -> None:
    steps = [moved(at_step(step)) for step in range(3)]
    control, candidate = (side.clone() for side in steps[0])
    ring = Ring(control)
    ring.compare(control, candidate)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ring.compare(control, candidate)
    ring.restart()
    torch.cuda.synchronize()
    found: list[Late] = []
    with no_host_sync():
        for given_control, given_candidate in steps:
            control.copy_(given_control)
            candidate.copy_(given_candidate)
            graph.replay()
            found += ring.turn()
    assert ring.stalls == 0
    assert_all([*found, *ring.drain()], 3)


def test_a_gate_names_the_same_element_on_the_device() -> None:
    pair = one_bit_apart((5, 3, 1000), torch.bfloat16, 14_500)
    assert arrays.first_unequal(*moved(pair)) == arrays.first_unequal(*pair) == (4, 2, 500)
    same = torch.zeros(SHAPE, device="cuda")
    assert arrays.first_unequal(same, same.clone()) is None
