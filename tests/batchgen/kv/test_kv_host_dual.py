"""Two host pools whose sequences live and grow together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch

from batchgen.kv import (
    DualAsyncLoadTask,
    DualHostKVCoordinator,
    DualKVCacheCoordinator,
    GPUPagedKVCacheManager,
    KVExhausted,
    KVPoolConfig,
    KVStats,
    open_host_pool,
)

CPU = torch.device("cpu")
PRIMARY = KVPoolConfig("primary", num_layers=2, num_pages=6, page_size=4, num_kv_heads=2, head_dim=3)
AUXILIARY = dataclasses.replace(PRIMARY, name="auxiliary", num_kv_heads=1, head_dim=5, has_value=False)


@pytest.fixture
def dual() -> Iterator[DualHostKVCoordinator]:
    views = [
        open_host_pool(config, node_id=0, local_rank=0, local_world=1, session="test")
        for config in (PRIMARY, AUXILIARY)
    ]
    dual = DualHostKVCoordinator(*views)
    yield dual
    dual.close()


def state(dual: DualHostKVCoordinator) -> list[object]:
    return [
        ({gid: view.build_page_table([gid]).tolist() for gid in view.sequence_ids()}, view.get_stats())
        for view in (dual.primary, dual.auxiliary)
    ]


def test_sequences_hold_equally_many_pages_in_both(dual: DualHostKVCoordinator) -> None:
    dual.register_sequences([1, 2])
    dual.allocate_pages_for_sequences([(1, 5), (2, 4)])
    dual.grow_pages_for_sequences([(2, 1)])
    assert [dual.auxiliary.page_count(gid) for gid in (1, 2)] == [2, 2]
    assert [dual.page_count(gid) for gid in (1, 2)] == [2, 2]
    assert dual.build_page_table([2]).tolist() == [[3, 2]]
    assert dual.get_stats() == dual.auxiliary.get_stats() == KVStats(2, 4, 6)
    dual.check_invariants()
    dual.release_sequence_pages([1])
    assert not dual.has_sequence(1) and not dual.auxiliary.has_sequence(1) and dual.sequence_ids() == [2]
    dual.register_sequences([3])
    dual.unregister_sequences([3])
    assert not dual.has_sequence(3) and not dual.auxiliary.has_sequence(3)
    assert dual.config is PRIMARY
    dual.check_invariants()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda d: d.register_sequences([7, 8]), ValueError),
        (lambda d: d.allocate_pages_for_sequences([(2, 8), (3, 4)]), KVExhausted),
        (lambda d: d.grow_pages_for_sequences([(1, 1), (2, 2)]), KVExhausted),
        (lambda d: d.unregister_sequences([3, 9]), KeyError),
        (lambda d: d.release_sequence_pages([1, 9]), KeyError),
    ],
)
def test_what_only_the_auxiliary_refuses_changes_neither(dual: DualHostKVCoordinator, call, error) -> None:
    dual.register_sequences([1, 2, 3])
    dual.allocate_pages_for_sequences([(1, 8)])
    dual.auxiliary.register_sequences([8])  # behind the coordinator's back: 2 pages left
    dual.auxiliary.allocate_pages_for_sequences([(8, 8)])
    dual.primary.register_sequences([9])
    before = state(dual)
    with pytest.raises(error):
        call(dual)
    assert state(dual) == before
    dual.primary.unregister_sequences([9])
    dual.grow_pages_for_sequences([(1, 2)])  # the free list is in the order it had
    assert dual.primary.build_page_table([1]).tolist() == [[5, 4, 3, 2]]


def test_both_pools_are_loaded_by_one_task(dual: DualHostKVCoordinator) -> None:
    dual.register_sequences([1])
    dual.allocate_pages_for_sequences([(1, 8)])
    k, v, index = torch.randn(2, 6, 2, 3), torch.randn(2, 6, 2, 3), torch.randn(2, 6, 1, 5)
    for layer in range(2):
        dual.async_offload_layer_kv_range_to_host(layer, [1], k[layer, :5], v[layer, :5], [0, 5], [0])
        dual.auxiliary.async_offload_layer_kv_range_to_host(layer, [1], index[layer, :5], None, [0, 5], [0])
        dual.async_append_decode_kv_to_host(layer, [1], k[layer, 5:], v[layer, 5:], [5])
        dual.auxiliary.async_append_decode_kv_to_host(layer, [1], index[layer, 5:], None, [5])
    device = DualKVCacheCoordinator(
        GPUPagedKVCacheManager(PRIMARY, CPU), GPUPagedKVCacheManager(AUXILIARY, CPU)
    )
    device.initialize()
    device.allocate_pages_for_sequences([1], [6])
    device.rebuild_page_table([1])
    task = dual.async_load_dual(
        [1], [2], *device.primary.get_page_pointers(), device.auxiliary.get_page_pointers()[0]
    )
    assert isinstance(task, DualAsyncLoadTask)
    task.wait()
    assert task.done()
    pages = device._sequences[1]
    assert torch.equal(device.primary.k_cache[:, pages].flatten(1, 2)[:, :6], k)
    assert torch.equal(device.primary.v_cache[:, pages].flatten(1, 2)[:, :6], v)  # type: ignore[index]
    assert torch.equal(device.auxiliary.k_cache[:, pages].flatten(1, 2)[:, :6], index)
    assert torch.equal(dual.read_sequence_kv_to_cpu(1, 6)[0], k)


def test_the_other_copies_go_to_the_primary(dual: DualHostKVCoordinator) -> None:
    dual.register_sequences([1])
    dual.allocate_pages_for_sequences([(1, 4)])
    k, v = torch.randn(2, 3, 2, 3), torch.randn(2, 3, 2, 3)
    dual.write_sequence_kv_from_cpu(1, k, v)
    k[:, 2] = 7.0
    entries = [(layer, k[layer, 2:], v[layer, 2:]) for layer in range(2)]
    dual.async_append_decode_kv_to_host_batched_kernel(entries, [1], [2]).wait()
    manager = GPUPagedKVCacheManager(PRIMARY, CPU)
    manager.initialize()
    manager.allocate_pages_for_sequences([1], [3])
    manager.rebuild_page_table([1])
    dual.async_load_layer_paged_kv_to_device([1], [1], *manager.get_page_pointers()).wait()
    assert torch.equal(manager.k_cache[:, 5, :3], k)
    assert dual.auxiliary.read_sequence_kv_to_cpu(1, 3)[0].eq(0).all()


def test_a_load_that_the_auxiliary_refuses_leaves_nothing_running(dual: DualHostKVCoordinator) -> None:
    dual.register_sequences([1])
    dual.allocate_pages_for_sequences([(1, 4)])
    manager = GPUPagedKVCacheManager(PRIMARY, CPU)
    manager.initialize()
    manager.allocate_pages_for_sequences([1], [3])
    manager.rebuild_page_table([1])
    keys, values = manager.get_page_pointers()
    with pytest.raises(ValueError, match=r"'auxiliary': pages .* cannot be loaded into"):
        dual.async_load_dual([1], [1], keys, values, keys)
    assert dual.primary._tasks._last is None or dual.primary._tasks._last.done()


def test_different_pools_are_refused_and_a_broken_mirror_is_named(dual: DualHostKVCoordinator) -> None:
    other = dataclasses.replace(AUXILIARY, page_size=8)
    view = open_host_pool(other, node_id=0, local_rank=0, local_world=1, session="test")
    with pytest.raises(ValueError, match="cannot be mirrored: page_size is 4 and 8"):
        DualHostKVCoordinator(dual.primary, view)
    view.close()
    dual.register_sequences([1])
    dual.allocate_pages_for_sequences([(1, 4)])
    dual.auxiliary.grow_pages_for_sequences([(1, 1)])
    with pytest.raises(AssertionError, match="sequence 1 holds 1 and 2 pages"):
        dual.check_invariants()
