"""Two pools in lockstep: both change or neither does."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from batchgen.kv import DualKVCacheCoordinator, GPUPagedKVCacheManager, KVExhausted, KVPoolConfig, KVStats

CPU = torch.device("cpu")
PRIMARY = KVPoolConfig("primary", 2, 6, 4, 1, 2, max_slots=4, graph_max_slots=3, graph_max_pages=3)
AUXILIARY = dataclasses.replace(PRIMARY, name="auxiliary", head_dim=3, has_value=False)


@pytest.fixture
def dual() -> DualKVCacheCoordinator:
    dual = DualKVCacheCoordinator(
        GPUPagedKVCacheManager(PRIMARY, CPU), GPUPagedKVCacheManager(AUXILIARY, CPU)
    )
    dual.initialize()
    return dual


def state(dual: DualKVCacheCoordinator) -> list[object]:
    return [
        ({s: list(p) for s, p in pool._sequences.items()}, pool.slot_to_seq_id, pool.gpu_table.tolist())
        for pool in (dual.primary, dual.auxiliary)
    ] + [list(pool._live().ledger.free_pages) for pool in (dual.primary, dual.auxiliary)]


def test_both_pools_give_the_same_pages(dual: DualKVCacheCoordinator) -> None:
    assert dual.allocate_pages_for_sequences([1, 2], [4, 8]) == {1: [5], 2: [4, 3]}
    assert dual.grow_pages_for_sequences([1], [1]) == {1: [2]}
    assert dual.extend_pages_for_sequence(2, 9) == [1]
    assert dual.extend_pages_for_sequence(2, 9) == []
    dual.rebuild_page_table([2, 1])
    dual.free_pages_for_sequences([1])
    assert dual.auxiliary._sequences == dual._sequences == {2: [4, 3, 1]}
    assert dual.auxiliary.slot_to_seq_id == dual.slot_to_seq_id == [2, 1]
    assert dual.auxiliary.gpu_table.tolist() == dual.gpu_table.tolist()
    assert dual.auxiliary.get_stats() == dual.get_stats() == KVStats(3, 3, 6)
    dual.check_invariants()


def test_pages_change_their_owner_in_both_pools_without_becoming_free(dual: DualKVCacheCoordinator) -> None:
    dual.allocate_pages_for_sequences([1, 2], [12, 4])
    dual.rebuild_page_table([1, 2])
    dual.regroup_pages([1], {-7: [5, 4], 3: [3]})
    assert dual.pages_of(-7) == [5, 4] and dual.pages_of(3) == [3] and not dual.has_sequence(1)
    assert dual.get_stats() == KVStats(2, 4, 6)
    assert dual.gpu_table[0].tolist() == [-1] * 7
    dual.check_invariants()
    dual.regroup_pages([3, -7], {1: [5, 4, 3]})
    assert dual.pages_of(1) == [5, 4, 3]
    dual.check_invariants()


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ([9], {1: []}, KeyError),
        ([1, 1], {3: [5, 4, 3]}, KeyError),
        ([1], {3: [5, 4]}, ValueError),  # a page would be nobody's
        ([1], {3: [5, 4, 3], 4: [3]}, ValueError),  # one would have two owners
        ([1], {2: [5, 4, 3]}, ValueError),  # 2 has pages of its own
    ],
)
def test_a_regrouping_that_loses_or_doubles_a_page_changes_nothing(
    dual: DualKVCacheCoordinator, old: list[int], new: dict[int, list[int]], error: type[Exception]
) -> None:
    dual.allocate_pages_for_sequences([1, 2], [12, 4])
    before = state(dual)
    with pytest.raises(error):
        dual.regroup_pages(old, new)
    assert state(dual) == before


def test_the_coordinator_shows_the_primary(dual: DualKVCacheCoordinator) -> None:
    dual.allocate_pages_for_sequences([1, 2], [4, 8])
    dual.rebuild_page_table([2, 1])
    assert dual.config is PRIMARY and dual.device == CPU and dual.scratch_page_id == 6
    assert dual.sequence_ids() == [1, 2] and dual.num_pages_of(2) == 2
    assert dual.export_active_sequence_page_counts().tolist() == [2, 1]
    assert dual.page_table_for_rows(2).tolist() == [[4, 3], [5, -1]]
    assert dual.rebuild_version == dual.primary.rebuild_version


def test_both_graph_tables_are_filled(dual: DualKVCacheCoordinator) -> None:
    dual.allocate_pages_for_sequences([1], [8])
    dual.rebuild_page_table([1])
    table = dual.get_cuda_graph_page_table()
    assert table.data_ptr() == dual.ensure_cuda_graph_page_table().data_ptr()
    assert dual.get_cuda_graph_page_table_state() == dual.primary.get_cuda_graph_page_table_state()
    assert dual.auxiliary.get_cuda_graph_page_table_state()[4]
    assert dual.auxiliary.ensure_cuda_graph_page_table().tolist() == table.tolist()
    dual.clear_page_table()
    assert dual.auxiliary.slot_to_seq_id == dual.slot_to_seq_id == []


@pytest.mark.parametrize("method", ["get_kv_tensors", "get_page_pointers"])
def test_tensors_are_asked_of_one_pool(dual: DualKVCacheCoordinator, method: str) -> None:
    args = [0] if method == "get_kv_tensors" else []
    with pytest.raises(RuntimeError, match=rf"primary-only method {method}: use \.primary or \.auxiliary"):
        getattr(dual, method)(*args)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda d: d.allocate_pages_for_sequences([2], [12]), KVExhausted),
        (lambda d: d.allocate_pages_for_sequences([1], [4]), ValueError),
        (lambda d: d.grow_pages_for_sequences([1], [4]), KVExhausted),
        (lambda d: d.extend_pages_for_sequence(1, 20), KVExhausted),
        (lambda d: d.extend_pages_for_sequence(7, 20), KeyError),
        (lambda d: d.free_pages_for_sequences([1, 8]), KeyError),
        (lambda d: d.rebuild_page_table([1, 8]), KeyError),
    ],
)
def test_what_only_the_auxiliary_refuses_changes_neither(dual: DualKVCacheCoordinator, call, error) -> None:
    dual.allocate_pages_for_sequences([1], [4])
    dual.rebuild_page_table([1])
    dual.auxiliary.allocate_pages_for_sequences([9], [12])  # behind the coordinator's back: 2 pages left
    dual.primary.allocate_pages_for_sequences([8], [4])
    before = state(dual)
    with pytest.raises(error):
        call(dual)
    assert state(dual) == before


def test_exhaustion_of_the_auxiliary_is_reported_as_such(dual: DualKVCacheCoordinator) -> None:
    dual.auxiliary.allocate_pages_for_sequences([9], [12])
    with pytest.raises(KVExhausted, match="'auxiliary': 4 pages needed, 3 free"):
        dual.allocate_pages_for_sequences([1], [16])


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("allocate_pages_for_sequences", ([3, 4], [8, 4])),
        ("grow_pages_for_sequences", ([2, 5], [2, 1])),
        ("rebuild_page_table", ([5, 2],)),
    ],
)
def test_a_fault_inside_the_second_pool_is_taken_back_in_the_first(
    dual: DualKVCacheCoordinator, monkeypatch: pytest.MonkeyPatch, method: str, args: tuple[list[int], ...]
) -> None:
    dual.allocate_pages_for_sequences([1, 2, 5], [8, 4, 4])
    dual.rebuild_page_table([1, 2])
    dual.free_pages_for_sequences([1])
    before = state(dual)

    def fail(*args: object) -> None:
        raise MemoryError("planted")

    monkeypatch.setattr(dual.auxiliary, method, fail)
    with pytest.raises(MemoryError, match="planted"):
        getattr(dual, method)(*args)
    assert state(dual) == before
    dual.check_invariants()


def test_pools_that_would_give_different_pages_are_found_at_once(dual: DualKVCacheCoordinator) -> None:
    dual.auxiliary.allocate_pages_for_sequences([9], [4])
    before = state(dual)
    with pytest.raises(RuntimeError, match=r"no longer mirrored: sequence 1 would get pages \[5\] and \[4\]"):
        dual.allocate_pages_for_sequences([1], [4])
    assert state(dual) == before


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d.auxiliary.extend_pages_for_sequence(1, 8), r"sequence 1 holds pages \[5\] and \[5, 3\]"),
        (lambda d: d.auxiliary.rebuild_page_table([2, 1]), r"rows are \[1, 2\] and \[2, 1\]"),
        (lambda d: d.auxiliary.gpu_table[3, 3].fill_(0), "page tables differ"),
    ],
)
def test_a_broken_mirror_is_named(dual: DualKVCacheCoordinator, damage, message: str) -> None:
    dual.allocate_pages_for_sequences([1, 2], [4, 4])
    dual.rebuild_page_table([1, 2])
    dual.assert_mirrored_state()
    damage(dual)
    with pytest.raises(AssertionError, match=message):
        dual.assert_mirrored_state()


def test_life_cycle_covers_both(dual: DualKVCacheCoordinator) -> None:
    dual.destroy()
    assert not dual.primary.is_initialized and not dual.auxiliary.is_initialized and not dual.is_initialized
    assert dual.get_stats() == KVStats(0, 0, 0) and 1 not in dual._sequences
    dual.primary.initialize()
    assert not dual.is_initialized
    dual.initialize()
    assert dual.is_initialized


def test_when_the_second_pool_does_not_fit_the_first_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    dual = DualKVCacheCoordinator(
        GPUPagedKVCacheManager(PRIMARY, CPU), GPUPagedKVCacheManager(AUXILIARY, CPU)
    )

    def fail() -> None:
        raise MemoryError("planted")

    monkeypatch.setattr(dual.auxiliary, "initialize", fail)
    with pytest.raises(MemoryError):
        dual.initialize()
    assert not dual.primary.is_initialized


def test_pools_of_different_size_are_refused() -> None:
    small = GPUPagedKVCacheManager(dataclasses.replace(AUXILIARY, num_pages=5), CPU)
    with pytest.raises(ValueError, match="cannot be mirrored: num_pages is 6 and 5"):
        DualKVCacheCoordinator(GPUPagedKVCacheManager(PRIMARY, CPU), small)
