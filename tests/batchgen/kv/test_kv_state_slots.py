"""Recurrent-state slots: lowest first, zeroed on arrival, never shared."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from batchgen.kv import StateSlotPool


def test_the_lowest_slot_is_given_first() -> None:
    pool = StateSlotPool(4)
    assert pool.allocate([10, 11, 12]) == [0, 1, 2]
    pool.release([11, 10])
    assert pool.allocate([13]) == [0]
    assert pool.slots_for([13, 12]).tolist() == [0, 2]
    assert pool.slots_for([13]).dtype == torch.int64
    assert pool.has(13) and not pool.has(10)
    assert (pool.num_free, pool.num_used) == (2, 2)


def test_a_sequence_never_sees_the_state_of_the_slot_s_former_owner() -> None:
    pool = StateSlotPool(2, (3, 2), dtype=torch.bfloat16)
    pool.allocate([1, 2])
    pool.states[pool.slots_for([1, 2])] = 5.0
    pool.release([1])
    pool.allocate([3])
    assert pool.states.shape == (2, 3, 2) and pool.states.dtype == torch.bfloat16
    assert pool.states[0].eq(0).all() and pool.states[1].eq(5.0).all()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda p: p.allocate([2, 3, 4]), RuntimeError),
        (lambda p: p.allocate([2, 1]), ValueError),
        (lambda p: p.allocate([2, 2]), ValueError),
        (lambda p: p.release([1, 9]), KeyError),
        (lambda p: p.release([1, 1]), KeyError),
        (lambda p: p.slots_for([1, 9]), KeyError),
    ],
)
def test_a_refused_call_changes_nothing(call, error: type) -> None:
    pool = StateSlotPool(3)
    pool.allocate([1])
    with pytest.raises(error):
        call(pool)
    assert (pool.num_free, pool.num_used) == (2, 1)
    assert pool.slots_for([1]).tolist() == [0]
    pool.check_invariants()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=40))
def test_slots_are_conserved(calls: list[tuple[bool, int]]) -> None:
    pool, owners = StateSlotPool(4), dict[int, int]()
    for allocate, gid in calls:
        if allocate and gid not in owners and len(owners) < 4:
            lowest = min(set(range(4)) - set(owners.values()))
            assert pool.allocate([gid]) == [lowest]
            owners[gid] = lowest
        elif not allocate and gid in owners:
            pool.release([gid])
            del owners[gid]
        assert pool.slots_for(list(owners)).tolist() == list(owners.values())
        assert pool.num_free + pool.num_used == 4
        pool.check_invariants()


def test_damage_is_named() -> None:
    pool = StateSlotPool(3)
    pool.allocate([1])
    pool._free.append(0)
    with pytest.raises(AssertionError, match=r"owned \{1: 0\}"):
        pool.check_invariants()


def test_what_is_kept_comes_back_once_into_any_slot_and_is_forgotten_on_demand() -> None:
    pool = StateSlotPool(3, (2,))
    staying = {1, 2, 3}
    pool.keeps = staying.__contains__
    pool.allocate([1, 2, 3])
    pool.states[:] = torch.tensor([[1.0], [2.0], [3.0]])
    staying.remove(2)
    pool.release([1, 2, 3])
    assert pool.num_kept == 2
    pool.states.fill_(9.0)
    assert pool.allocate([3, 2, 1]) == [0, 1, 2]
    assert pool.states.tolist() == [[3.0, 3.0], [0.0, 0.0], [1.0, 1.0]]
    assert pool.num_kept == 0
    pool.release([1, 3])
    pool.forget([3, 77])
    assert pool.num_kept == 1
    pool.allocate([3])
    assert pool.states[pool.slots_for([3])].eq(0).all()
    pool.check_invariants()
    pool._kept[3] = torch.zeros(2)
    with pytest.raises(AssertionError, match=r"\[3\] have a state slot and a kept state"):
        pool.check_invariants()


def test_the_slot_for_padded_rows_is_nobody_s() -> None:
    pool = StateSlotPool(2, (1,))
    pool.storage[-1] = 5.0
    assert pool.states.shape == (2, 1) and pool.states.eq(0).all()
    assert pool.allocate([1, 2]) == [0, 1]


def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one slot"):
        StateSlotPool(0)
