"""The GPU page pool: page ids, tables and errors on examples small enough to follow by hand."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from batchgen.kv import GPUPagedKVCacheManager, KVExhausted, KVPoolConfig, KVStats

CPU = torch.device("cpu")
CONFIG = KVPoolConfig(
    name="primary",
    num_layers=2,
    num_pages=6,
    page_size=4,
    num_kv_heads=1,
    head_dim=2,
    max_slots=4,
    graph_max_slots=3,
    graph_max_pages=3,
)


@pytest.fixture
def manager() -> GPUPagedKVCacheManager:
    manager = GPUPagedKVCacheManager(CONFIG, CPU)
    manager.initialize()
    return manager


def state(manager: GPUPagedKVCacheManager) -> tuple[object, ...]:
    pages = {sid: list(pages) for sid, pages in manager._sequences.items()}
    return pages, manager.get_stats(), manager.gpu_table.tolist(), manager.rebuild_version


def test_pages_are_popped_from_the_end_and_pushed_back_in_order(manager: GPUPagedKVCacheManager) -> None:
    # free: 0 1 2 3 4 5
    assert manager.allocate_pages_for_sequences([10, 11], [5, 4]) == {10: [5, 4], 11: [3]}
    # free: 0 1 2
    manager.free_pages_for_sequences([10])
    # free: 0 1 2 5 4
    assert manager.grow_pages_for_sequences([11], [2]) == {11: [4, 5]}
    assert manager._sequences == {11: [3, 4, 5]}
    assert manager.get_stats() == KVStats(num_free_pages=3, num_used_pages=3, num_total_pages=6)
    manager.check_invariants()


def test_extend_gives_only_the_missing_pages(manager: GPUPagedKVCacheManager) -> None:
    manager.allocate_pages_for_sequences([7], [3])
    assert manager.extend_pages_for_sequence(7, 4) == []
    assert manager.extend_pages_for_sequence(7, 9) == [4, 3]
    assert manager.num_pages_of(7) == 3


def test_the_table_has_the_rows_in_the_given_order_and_minus_one_elsewhere(
    manager: GPUPagedKVCacheManager,
) -> None:
    manager.allocate_pages_for_sequences([1, 2], [4, 8])
    manager.rebuild_page_table([2, 1])
    assert manager.slot_to_seq_id == [2, 1]
    assert manager.gpu_table.dtype == torch.int32
    assert manager.gpu_table.tolist() == [
        [4, 3, -1, -1, -1, -1, -1],
        [5, -1, -1, -1, -1, -1, -1],
        [-1] * 7,
        [-1] * 7,
    ]
    assert manager.page_table_for_rows(2).tolist() == [[4, 3], [5, -1]]
    assert manager.page_table_for_rows(3).tolist() == [[4, 3], [5, -1], [-1, -1]]
    assert manager.export_active_sequence_page_counts().tolist() == [2, 1]
    assert manager.export_active_sequence_page_counts().dtype == torch.int64


def test_rows_and_columns_of_a_larger_batch_do_not_survive_in_a_smaller_one(
    manager: GPUPagedKVCacheManager,
) -> None:
    manager.allocate_pages_for_sequences([1, 2, 3], [4, 12, 4])
    manager.rebuild_page_table([1, 2, 3])
    manager.get_cuda_graph_page_table()
    manager.rebuild_page_table([3])
    assert manager.gpu_table.tolist() == [[1] + [-1] * 6] + [[-1] * 7] * 3
    assert manager.get_cuda_graph_page_table().tolist() == [[1, -1, -1], [-1] * 3, [-1] * 3]
    manager.clear_page_table()
    assert manager.gpu_table.eq(-1).all()
    assert manager.slot_to_seq_id == []
    assert manager.get_cuda_graph_page_table().eq(-1).all()


def test_a_freed_sequence_leaves_no_page_in_the_table(manager: GPUPagedKVCacheManager) -> None:
    manager.allocate_pages_for_sequences([1, 2], [8, 8])
    manager.rebuild_page_table([1, 2])
    version = manager.rebuild_version
    manager.free_pages_for_sequences([1])
    assert manager.slot_to_seq_id == [1, 2]
    assert manager.page_table_for_rows(2).tolist() == [[-1, -1], [3, 2]]
    assert manager.rebuild_version > version
    manager.check_invariants()


def test_growth_shows_in_the_table_at_the_next_rebuild(manager: GPUPagedKVCacheManager) -> None:
    manager.allocate_pages_for_sequences([1], [4])
    manager.rebuild_page_table([1])
    manager.extend_pages_for_sequence(1, 8)
    assert manager.page_table_for_rows(1).tolist() == [[5]]
    manager.check_invariants()
    manager.rebuild_page_table([1])
    assert manager.page_table_for_rows(1).tolist() == [[5, 4]]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda m: m.allocate_pages_for_sequences([2, 3], [4, 21]), KVExhausted),
        (lambda m: m.allocate_pages_for_sequences([2, 1], [4, 4]), ValueError),
        (lambda m: m.allocate_pages_for_sequences([2, 2], [4, 4]), ValueError),
        (lambda m: m.allocate_pages_for_sequences([2, 3], [4]), ValueError),
        (lambda m: m.allocate_pages_for_sequences([2, 3], [4, -1]), ValueError),
        (lambda m: m.grow_pages_for_sequences([1], [6]), KVExhausted),
        (lambda m: m.grow_pages_for_sequences([1, 9], [1, 1]), KeyError),
        (lambda m: m.grow_pages_for_sequences([1], [-1]), ValueError),
        (lambda m: m.extend_pages_for_sequence(1, 25), KVExhausted),
        (lambda m: m.extend_pages_for_sequence(9, 1), KeyError),
        (lambda m: m.free_pages_for_sequences([1, 9]), KeyError),
        (lambda m: m.free_pages_for_sequences([1, 1]), KeyError),
        (lambda m: m.rebuild_page_table([]), ValueError),
        (lambda m: m.rebuild_page_table([1, 9]), KeyError),
        (lambda m: m.rebuild_page_table([1, 1]), ValueError),
        (lambda m: m.num_pages_of(9), KeyError),
        (lambda m: m.page_table_for_rows(5), ValueError),
    ],
)
def test_a_refused_call_changes_nothing(manager: GPUPagedKVCacheManager, call, error: type) -> None:
    manager.allocate_pages_for_sequences([1], [4])
    manager.rebuild_page_table([1])
    before = state(manager)
    with pytest.raises(error):
        call(manager)
    assert state(manager) == before
    manager.check_invariants()


def test_exhaustion_says_which_pool_and_how_much(manager: GPUPagedKVCacheManager) -> None:
    manager.allocate_pages_for_sequences([1], [8])
    with pytest.raises(KVExhausted, match=r"'primary': 5 pages needed, 4 free") as caught:
        manager.allocate_pages_for_sequences([2, 3], [16, 4])
    assert (caught.value.pool, caught.value.need, caught.value.free) == ("primary", 5, 4)


def test_a_second_free_raises(manager: GPUPagedKVCacheManager) -> None:
    manager.allocate_pages_for_sequences([1], [8])
    manager.free_pages_for_sequences([1])
    with pytest.raises(KeyError, match="sequence 1 is not allocated"):
        manager.free_pages_for_sequences([1])
    assert manager.get_stats().num_free_pages == 6


def test_more_rows_than_slots_are_refused(manager: GPUPagedKVCacheManager) -> None:
    manager.allocate_pages_for_sequences([1, 2, 3, 4, 5], [1] * 5)
    with pytest.raises(ValueError, match="5 sequences do not fit into a page table of 4 rows"):
        manager.rebuild_page_table([1, 2, 3, 4, 5])


def test_the_scratch_page_is_never_given_out(manager: GPUPagedKVCacheManager) -> None:
    pages = manager.allocate_pages_for_sequences([1], [24])[1]
    assert manager.scratch_page_id == 6
    assert manager.k_cache.shape == (2, 7, 4, 1, 2)
    assert manager.v_cache is not None and manager.v_cache.shape == manager.k_cache.shape
    assert sorted(pages) == [0, 1, 2, 3, 4, 5]
    k, v = manager.get_kv_tensors(1)
    k[manager.scratch_page_id] = 3.0
    assert manager.k_cache[1, 6].eq(3.0).all()
    assert v is not None and v.data_ptr() == manager.v_cache[1].data_ptr()


def test_a_keys_only_pool_has_no_values() -> None:
    config = dataclasses.replace(CONFIG, name="auxiliary", has_value=False, dtype=torch.bfloat16)
    manager = GPUPagedKVCacheManager(config, CPU)
    manager.initialize()
    assert manager.v_cache is None
    assert manager.get_kv_tensors(0)[1] is None
    assert manager.get_page_pointers()[1] is None
    assert manager.k_cache.dtype == torch.bfloat16
    assert config.bytes_per_page == 2 * 4 * 1 * 2 * 2
    assert CONFIG.bytes_per_page == 2 * 2 * 4 * 1 * 2 * 4


def test_page_pointers_stay_what_they_were(manager: GPUPagedKVCacheManager) -> None:
    manager.allocate_pages_for_sequences([1, 2], [4, 8])
    manager.rebuild_page_table([2])
    keys, values = manager.get_page_pointers()
    manager.free_pages_for_sequences([2])
    manager.rebuild_page_table([1])
    assert keys.page_ids.tolist() == [[4, 3]]
    assert values is not None and values.page_ids.tolist() == [[4, 3]]
    assert keys.storage.data_ptr() == manager.k_cache.data_ptr()
    assert values.storage.data_ptr() == manager.get_kv_tensors(0)[1].data_ptr()  # type: ignore[union-attr]


def test_the_graph_table_keeps_its_address_and_knows_when_it_is_stale(
    manager: GPUPagedKVCacheManager,
) -> None:
    table = manager.ensure_cuda_graph_page_table()
    assert table.tolist() == [[-1] * 3] * 3
    pointer, shape, dtype, device, valid = manager.get_cuda_graph_page_table_state()
    assert (pointer, shape, dtype, device) == (table.data_ptr(), (3, 3), torch.int32, "cpu")
    assert not valid
    manager.allocate_pages_for_sequences([1, 2], [4, 8])
    for rows in ([1, 2], [2], [2, 1]):
        manager.rebuild_page_table(rows)
        assert not manager.get_cuda_graph_page_table_state()[4]
        filled = manager.get_cuda_graph_page_table()
        assert filled[: len(rows), :2].tolist() == manager.page_table_for_rows(len(rows)).tolist()
        assert filled[len(rows) :].eq(-1).all()
        assert manager.get_cuda_graph_page_table_state() == (pointer, shape, dtype, device, True)
        manager.check_invariants()
    manager.free_pages_for_sequences([1])
    assert not manager.get_cuda_graph_page_table_state()[4]


@pytest.mark.parametrize("tokens", [[1, 1, 1, 1], [16]], ids=["too many rows", "too many pages"])
def test_a_table_too_large_for_the_graph_is_refused(
    manager: GPUPagedKVCacheManager, tokens: list[int]
) -> None:
    ids = list(range(len(tokens)))
    manager.allocate_pages_for_sequences(ids, tokens)
    manager.rebuild_page_table(ids)
    with pytest.raises(ValueError, match="exceeds the graph page table of 3 x 3"):
        manager.get_cuda_graph_page_table()
    assert not manager.get_cuda_graph_page_table_state()[4]


def test_initialize_twice_keeps_the_pool_and_after_destroy_makes_a_fresh_one(
    manager: GPUPagedKVCacheManager,
) -> None:
    manager.allocate_pages_for_sequences([1], [4])
    manager.rebuild_page_table([1])
    manager.k_cache.fill_(1.0)
    version = manager.rebuild_version
    manager.initialize()
    assert manager.sequence_ids() == [1] and manager.k_cache.eq(1.0).all()
    manager.destroy()
    manager.destroy()
    assert not manager.is_initialized
    assert manager.get_stats() == KVStats(0, 0, 0)
    assert 1 not in manager._sequences and manager.slot_to_seq_id == []
    manager.initialize()
    assert manager.sequence_ids() == [] and manager.k_cache.eq(0.0).all() and manager.gpu_table.eq(-1).all()
    assert manager.rebuild_version > version
    assert manager.allocate_pages_for_sequences([1], [4]) == {1: [5]}


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.allocate_pages_for_sequences([1], [4]),
        lambda m: m.grow_pages_for_sequences([1], [4]),
        lambda m: m.extend_pages_for_sequence(1, 4),
        lambda m: m.free_pages_for_sequences([]),
        lambda m: m.rebuild_page_table([1]),
        lambda m: m.clear_page_table(),
        lambda m: m.get_page_pointers(),
        lambda m: m.get_kv_tensors(0),
        lambda m: m.ensure_cuda_graph_page_table(),
        lambda m: m.page_table_for_rows(1),
        lambda m: m.k_cache,
        lambda m: m.check_invariants(),
    ],
)
def test_a_pool_that_is_not_initialised_says_so(manager: GPUPagedKVCacheManager, call) -> None:
    manager.destroy()
    with pytest.raises(RuntimeError, match="'primary' on cpu is not initialised"):
        call(manager)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda m: m._pool.ledger.free_pages.append(m._sequences[1][0]),
            "page 5 is in the free list and in seq",
        ),
        (lambda m: m._pool.ledger.free_pages.pop(), r"pages \[2\] are neither free nor owned"),
        (lambda m: m._sequences[2].append(m._sequences[1][0]), "page 5 is in sequence 1 and in sequence 2"),
        (lambda m: m._sequences[1].__setitem__(0, 6), "sequence 1 names page 6, not in the pool"),
        (lambda m: m.gpu_table[3].fill_(0), r"page table row 3 \(no sequence\) names page 0 in column 0"),
        (lambda m: m.gpu_table[0, 1].fill_(3), r"row 0 \(sequence 1\) names page 3 in column 1, expected -1"),
        (lambda m: m.gpu_table[1, 6].fill_(1), r"row 1 \(sequence 2\) names page 1 in column 6, expected -1"),
        (lambda m: m._sequences[2].reverse(), r"row 1 \(sequence 2\) names page 4 in column 0, expected 3"),
        (
            lambda m: m.ensure_cuda_graph_page_table()[2, 2].fill_(4),
            r"graph page table row 2 \(no sequence\)",
        ),
    ],
)
def test_damage_is_named(manager: GPUPagedKVCacheManager, damage, message: str) -> None:
    manager.allocate_pages_for_sequences([1, 2], [4, 8])
    manager.rebuild_page_table([1, 2])
    manager.get_cuda_graph_page_table()
    manager.check_invariants()
    damage(manager)
    with pytest.raises(AssertionError, match=message):
        manager.check_invariants()


@pytest.mark.parametrize(
    "field", ["num_layers", "num_pages", "page_size", "num_kv_heads", "head_dim", "max_slots"]
)
def test_a_config_without_room_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be at least 1"):
        dataclasses.replace(CONFIG, **{field: 0})


def test_a_pool_made_in_inference_mode_can_be_written_outside_of_it_and_the_reverse() -> None:
    with torch.inference_mode():
        inside = GPUPagedKVCacheManager(CONFIG, CPU)
        inside.initialize()
        inside.ensure_cuda_graph_page_table()
    outside = GPUPagedKVCacheManager(CONFIG, CPU)
    outside.initialize()

    def use(manager: GPUPagedKVCacheManager) -> None:
        manager.allocate_pages_for_sequences([1], [4])
        manager.rebuild_page_table([1])
        manager.get_cuda_graph_page_table()
        manager.k_cache[:, manager._sequences[1]] = 1.0
        manager.free_pages_for_sequences([1])
        manager.check_invariants()

    use(inside)
    with torch.inference_mode():
        use(outside)
