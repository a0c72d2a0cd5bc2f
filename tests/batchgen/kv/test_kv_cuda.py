"""The same pools on a CUDA device: copies run on a side stream and still arrive in order."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from batchgen.kv import GPUPagedKVCacheManager, KVPoolConfig, StateSlotPool, open_host_pool

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CONFIG = KVPoolConfig("primary", 4, 64, 16, 2, 64, dtype=torch.bfloat16, graph_max_slots=8, graph_max_pages=8)


def device_manager() -> GPUPagedKVCacheManager:
    manager = GPUPagedKVCacheManager(CONFIG, torch.device("cuda"))
    manager.initialize()
    return manager


def test_tables_follow_the_lists_on_the_device() -> None:
    manager = device_manager()
    manager.allocate_pages_for_sequences([1, 2], [40, 16])
    manager.rebuild_page_table([2, 1])
    pointer = manager.get_cuda_graph_page_table().data_ptr()
    manager.check_invariants()
    manager.free_pages_for_sequences([2])
    assert manager.page_table_for_rows(2).tolist() == [[-1] * 3, [63, 62, 61]]
    assert manager.get_cuda_graph_page_table().data_ptr() == pointer
    manager.check_invariants()


def test_what_kernels_still_compute_is_what_arrives_on_the_host_and_comes_back() -> None:
    manager = device_manager()
    view = open_host_pool(CONFIG, node_id=0, local_rank=0, local_world=1, session="cuda")
    view.register_sequences([1, 2])
    view.allocate_pages_for_sequences([(1, 48), (2, 48)])
    busy = torch.randn(4096, 4096, device="cuda")
    tasks, expected = [], []
    for position in range(33):
        for _ in range(3):
            busy = busy @ busy / 4096  # keeps the stream behind: a copy that does not wait reads too early
        k = (busy[:8, :64].reshape(4, 2, 1, 64) + position).repeat(1, 1, 2, 1).to(torch.bfloat16)
        entries = [(layer, k[layer], -k[layer]) for layer in range(4)]
        tasks.append(view.async_append_decode_kv_to_host_batched_kernel(entries, [1, 2], [position] * 2))
        expected.append(k)
    manager.allocate_pages_for_sequences([2, 1], [33, 33])
    manager.rebuild_page_table([2, 1])
    counts = manager.export_active_sequence_page_counts()
    tasks.append(view.async_load_layer_paged_kv_to_device([2, 1], counts, *manager.get_page_pointers()))
    for task in tasks:
        task.wait()
    truth = torch.stack(expected, dim=2)  # [layers, sequences, tokens, heads, dim]
    assert manager.v_cache is not None
    for row, gid in enumerate([1, 2]):
        pages = manager._sequences[gid]
        assert torch.equal(view.read_sequence_kv_to_cpu(gid, 33)[0], truth[:, row].cpu())
        assert torch.equal(manager.k_cache[:, pages].flatten(1, 2)[:, :33], truth[:, row])
        assert torch.equal(manager.v_cache[:, pages].flatten(1, 2)[:, :33], -truth[:, row])
    view.close()


def test_prompts_are_offloaded_from_the_device() -> None:
    config = dataclasses.replace(CONFIG, has_value=False)
    view = open_host_pool(config, node_id=0, local_rank=0, local_world=1, session="cuda")
    view.register_sequences([1, 2])
    view.allocate_pages_for_sequences([(1, 20), (2, 20)])
    k = torch.randn(25, 2, 64, device="cuda", dtype=torch.bfloat16)
    cu_seqlens = torch.tensor([0, 20, 25], dtype=torch.int32)
    view.async_offload_layer_kv_range_to_host(3, [1, 2], k, None, cu_seqlens, [0, 7]).wait()
    assert torch.equal(view.read_sequence_kv_to_cpu(1, 20)[0][3], k[:20].cpu())
    assert torch.equal(view.read_sequence_kv_to_cpu(2, 12)[0][3, 7:], k[20:].cpu())
    view.close()


def test_state_slots_live_on_the_device() -> None:
    pool = StateSlotPool(2, (3,), device=torch.device("cuda"))
    pool.allocate([5])
    assert pool.slots_for([5]).device.type == "cuda"
    assert pool.states[pool.slots_for([5])].eq(0).all()
