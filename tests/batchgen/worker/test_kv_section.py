"""The KV Cache Helper section, method by method, on live pools."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from batchgen.batchgen_worker import BatchGenWorker
from batchgen.kv import KVExhausted, KVStats
from batchgen.sequence import SequenceStatus

from .conftest import MakeWorker, random_requests


@contextmanager
def stopped_at(worker: BatchGenWorker, step: int, count: int = 6, **requests: Any) -> Iterator[list[int]]:
    """A batch in mid-decode: yields this rank's local indices in row order, at the first boundary after `step`."""
    seen: dict[str, Any] = {}
    original = worker._decode_handle_boundary

    class Reached(Exception):
        pass

    def at_boundary(state, tokens, uuids, batch):
        if worker.counters["decode_steps"] < step:
            return original(state, tokens, uuids, batch)
        worker._wait_pending_kv_append_tasks()
        seen["batch"] = batch
        raise Reached

    worker._decode_handle_boundary = at_boundary  # type: ignore[method-assign]
    abandon = worker._abandon_batch
    worker._abandon_batch = lambda: None  # type: ignore[method-assign]
    with pytest.raises(Reached):
        worker.generate(
            random_requests(count, **{"seed": 21, "prompt": (8, 20), "new": (30, 40), **requests})
        )
    try:
        yield seen["batch"]
    finally:
        worker._decode_handle_boundary = original  # type: ignore[method-assign]
        abandon()


@pytest.fixture(params=["tiny", "tiny-dual"])
def live(request: pytest.FixtureRequest, make_worker: MakeWorker) -> BatchGenWorker:
    # A queue that never fits whole keeps the worker on its two-page buffers.
    return make_worker(model=request.param, gpu_kv_pages=60, host_kv_pages=120, max_batch_size=4)


def test_the_budget_is_prompt_and_decode_and_is_remembered(live: BatchGenWorker) -> None:
    with stopped_at(live, 1) as batch:
        seq = live._get_sequence_by_local(batch[0])
        expected = seq.original_prompt_length + seq.original_max_decode_length
        live.query_book[batch[0]].kv_token_budget = 0
        assert live._get_sequence_token_budget(batch[0]) == expected
        assert live.query_book[batch[0]].kv_token_budget == expected
        live.query_book[batch[0]].kv_token_budget = 7
        assert live._compute_host_kv_sequence_tokens([batch[0]]) == [7]
        with pytest.raises(KeyError, match="no query book entry"):
            live._get_sequence_token_budget(10**6)
        book, live.query_book = live.query_book, {}
        with pytest.raises(RuntimeError, match="query book is empty"):
            live._get_sequence_token_budget(batch[0])
        live.query_book = book


def test_binding_publishes_the_pool_and_its_parts(live: BatchGenWorker) -> None:
    manager = live._ensure_gpu_paged_kv_manager([10])
    dual = live.model_config.name == "tiny-dual"
    assert live.gpu_paged_kv_cache_manager is manager
    assert live.core_engine.gpu_paged_kv_manager is (manager.primary if dual else manager)
    assert live.core_engine.gpu_paged_kv_manager_aux is (manager.auxiliary if dual else None)
    assert live._get_cuda_graph_gpu_manager() is manager
    live.gpu_paged_kv_cache_manager = None
    assert live._get_cuda_graph_gpu_manager() is live.core_engine.gpu_paged_kv_manager
    live._bind_gpu_paged_kv_manager(None)
    assert live._get_cuda_graph_gpu_manager() is None


def test_the_graph_table_is_as_wide_as_the_longest_sequence_and_as_high_as_the_batch(
    live: BatchGenWorker,
) -> None:
    context = live.model_config.max_position_embeddings
    assert live._cuda_graph_page_table_token_capacity() == min(context, 16384)
    assert live._cuda_graph_page_table_token_capacity([10, 10**6]) == 10**6
    assert live._cuda_graph_page_table_slot_capacity() == 4
    config, _ = live._make_kv_pool_configs(50)
    wide = live._with_cuda_graph_page_table_capacity(config, [10**6])
    assert (wide.graph_max_slots, wide.graph_max_pages) == (4, 50)
    live.args.cuda_graph_max_seqlen = 10**5
    assert live._cuda_graph_page_table_token_capacity() == 10**5


def test_the_pool_stays_while_it_is_large_enough_and_is_replaced_when_not(live: BatchGenWorker) -> None:
    small = live._ensure_gpu_paged_kv_manager([8, 8])
    assert small.config.num_pages == 4
    assert live._ensure_gpu_paged_kv_manager([4]) is small
    small.destroy()
    assert live._ensure_gpu_paged_kv_manager([4]) is small and small.is_initialized
    large = live._ensure_gpu_paged_kv_manager([10**6])
    assert large is not small and large.config.num_pages == live.args.gpu_kv_pages
    assert not small.is_initialized
    assert live.stats()["gpu_pools_created"] == 2


def test_a_pool_with_sequences_in_it_is_not_replaced(live: BatchGenWorker) -> None:
    live._ensure_gpu_paged_kv_manager([8])
    live._sequences_with_gpu_kv.add(3)
    with pytest.raises(RuntimeError, match=r"sequences \[3\] hold pages"):
        live._ensure_gpu_paged_kv_manager([10**6])
    live._sequences_with_gpu_kv.clear()


def gpu_content(worker: BatchGenWorker, global_id: int, tokens: int) -> list[torch.Tensor]:
    """KV of [0, tokens) of one sequence, read through its pages: one tensor per pool and kind."""
    manager = worker.gpu_paged_kv_cache_manager
    pools = [manager.primary, manager.auxiliary] if hasattr(manager, "primary") else [manager]
    found = []
    for pool in pools:
        pages = pool._sequences[global_id]
        for cache in (pool.k_cache, pool.v_cache):
            if cache is not None:
                found.append(cache[:, pages].flatten(1, 2)[:, :tokens].clone())
    return found


def host_content(worker: BatchGenWorker, global_id: int, tokens: int) -> list[torch.Tensor]:
    found = []
    views = [worker.core_engine.host_paged_kv_worker_view, worker.core_engine.host_paged_kv_worker_view_aux]
    for view in views:
        if view is not None:
            found += [t for t in view.read_sequence_kv_to_cpu(global_id, tokens) if t is not None]
    return found


def test_host_and_gpu_hold_the_same_bytes_after_decode_steps(live: BatchGenWorker) -> None:
    with stopped_at(live, 6) as batch:
        for local_idx in batch:
            seq = live._get_sequence_by_local(local_idx)
            tokens = seq.current_context_length - 1
            gpu, host = gpu_content(live, seq.global_idx, tokens), host_content(live, seq.global_idx, tokens)
            assert len(gpu) == len(host) == (3 if live.model_config.name == "tiny-dual" else 2)
            assert all(torch.equal(a, b) for a, b in zip(gpu, host, strict=True))


def test_a_held_sequence_comes_back_with_every_page_of_both_pools(live: BatchGenWorker) -> None:
    with stopped_at(live, 6) as batch:
        manager = live.gpu_paged_kv_cache_manager
        ids = [live._local_to_global_id(i) for i in batch]
        lengths = {
            g: live.global_batch.get_sequence(live._global_to_uuid[g]).current_context_length - 1 for g in ids
        }
        before = {g: gpu_content(live, g, lengths[g]) for g in ids}
        uuids = [live._local_to_uuid_map[i] for i in batch]
        live._put_sequences_on_hold(uuids)
        assert manager.get_stats().num_used_pages == 0
        assert not any(live.core_engine.state_slot_pool.has(g) for g in ids)
        live._allocate_state_slots(batch)
        assert live._allocate_gpu_kv_two_page_buffer(batch)
        for g in ids:
            assert all(
                torch.equal(a, b) for a, b in zip(before[g], gpu_content(live, g, lengths[g]), strict=True)
            )
        assert list(manager.slot_to_seq_id) == ids


def test_a_whole_reservation_holds_every_budget_and_loads(live: BatchGenWorker) -> None:
    with stopped_at(live, 6) as batch:
        live._put_sequences_on_hold([live._local_to_uuid_map[i] for i in batch])
        live._prepare_gpu_paged_kv_cache(batch[:2])
        for local_idx in batch[:2]:
            seq = live._get_sequence_by_local(local_idx)
            assert seq.gpu_pages_allocated * 4 >= seq.kv_token_budget
            tokens = seq.current_context_length - 1
            pairs = zip(
                gpu_content(live, seq.global_idx, tokens),
                host_content(live, seq.global_idx, tokens),
                strict=True,
            )
            assert all(torch.equal(a, b) for a, b in pairs)
        live._prepare_gpu_paged_kv_cache([])
        with pytest.raises(KVExhausted):
            live.gpu_paged_kv_cache_manager.allocate_pages_for_sequences([99], [4 * 60])


def pool_state(worker: BatchGenWorker) -> tuple[Any, ...]:
    """All that an allocation changes: free lists and owners of all pools, in order, and what the worker notes."""
    manager = worker.gpu_paged_kv_cache_manager
    pools = [manager.primary, manager.auxiliary] if hasattr(manager, "primary") else [manager]
    view = worker.core_engine.host_paged_kv_worker_view
    host = [view.primary, view.auxiliary] if hasattr(view, "primary") else [view]
    return (
        [(list(p._live().ledger.free_pages), {g: list(x) for g, x in p._sequences.items()}) for p in pools],
        [({g: list(x) for g, x in h._pages.items()}, h.get_stats()) for h in host],
        list(manager.slot_to_seq_id),
        set(worker._sequences_with_gpu_kv),
        [(s.gpu_pages_allocated, s.host_pages_allocated, s.host_token_capacity) for s in worker.global_batch],
    )


def test_pages_come_and_go_for_one_sequence(live: BatchGenWorker) -> None:
    with stopped_at(live, 3) as batch:
        seq = live._get_sequence_by_local(batch[0])
        manager = live.gpu_paged_kv_cache_manager
        held = list(manager._sequences[seq.global_idx])
        more = live._allocate_gpu_pages(seq.uuid, 3)
        assert len(more) == 3 and manager._sequences[seq.global_idx] == held + more
        live._release_gpu_pages(seq.uuid)
        assert seq.global_idx not in manager._sequences
        with pytest.raises(KeyError):
            live._release_gpu_pages(seq.uuid)
        first = live._allocate_gpu_pages(seq.uuid, 2)
        assert manager._sequences[seq.global_idx] == first and len(first) == 2
        manager.check_invariants()


def test_host_pages_are_grown_or_registered_with_the_first_ones(live: BatchGenWorker) -> None:
    with stopped_at(live, 3) as batch:
        seq = live._get_sequence_by_local(batch[0])
        view = live.core_engine.host_paged_kv_worker_view
        held = view.build_page_table([seq.global_idx])[0].tolist()
        more = live._allocate_host_pages(seq.uuid, 2)
        assert view.build_page_table([seq.global_idx])[0].tolist() == held + more and len(more) == 2
        before = pool_state(live)
        with pytest.raises(KVExhausted):
            live._allocate_host_pages(seq.uuid, 1000)
        assert pool_state(live) == before
        view.release_sequence_pages([seq.global_idx])
        before = pool_state(live)
        with pytest.raises(KVExhausted):
            live._allocate_host_pages(seq.uuid, 1000)
        assert pool_state(live) == before, "a sequence that got no pages stays unknown"
        assert len(live._allocate_host_pages(seq.uuid, 3)) == view.page_count(seq.global_idx) == 3


def test_what_is_refused_for_several_sequences_changes_nothing(live: BatchGenWorker) -> None:
    with stopped_at(live, 6) as batch:
        uuids = [live._local_to_uuid_map[i] for i in batch]
        live._put_sequences_onhold(uuids[1:])
        live._rebuild_page_table_for_batch(batch[:1])
        book = live.query_book
        free = live._get_gpu_kv_free_pages()
        for local_idx in batch[1:]:
            book[local_idx].kv_token_budget = 4 * (free // 2)
        before = pool_state(live)
        with pytest.raises(KVExhausted, match=f"'primary': {3 * (free // 2)} pages needed, {free} free"):
            live._prepare_gpu_paged_kv_cache(batch[1:])
        for local_idx in batch[1:]:
            book[local_idx].kv_token_budget = 8
        for refused in (live._prepare_gpu_paged_kv_cache, live._allocate_gpu_kv_two_page_buffer):
            with pytest.raises(ValueError, match="already holds"):
                refused([*batch[1:], batch[0]])
        with pytest.raises(ValueError, match="already holds"):
            live._launch_async_load_new_sequences([batch[1], batch[0]], [])
        for stranger in (batch[1], batch[0]):
            with pytest.raises(KeyError):
                live._release_gpu_kv_pages([batch[0], stranger])
        live.global_batch.get_sequence(uuids[1]).current_context_length += 40
        live.global_batch.get_sequence(uuids[0]).current_context_length += 40
        with pytest.raises(KeyError):
            live._extend_gpu_kv_allocation(uuids[:2])
        with pytest.raises(KVExhausted):
            live._grow_host_kv(uuids[:2], [1, 1000])
        assert pool_state(live) == before
        live.gpu_paged_kv_cache_manager.allocate_pages_for_sequences([99], [4 * free])
        before = pool_state(live)
        assert not live._allocate_gpu_kv_two_page_buffer(batch[1:])
        with pytest.raises(KVExhausted):
            live._launch_async_load_new_sequences(batch[1:], [])
        assert pool_state(live) == before


def test_growth_of_a_sequence_that_the_host_pool_does_not_know_changes_nothing(live: BatchGenWorker) -> None:
    with stopped_at(live, 6) as batch:
        uuids = [live._local_to_uuid_map[i] for i in batch[:2]]
        live.core_engine.host_paged_kv_worker_view.release_sequence_pages(
            [live._local_to_global_id(batch[1])]
        )
        before = pool_state(live)
        with pytest.raises(KeyError):
            live._grow_host_kv(uuids, [1, 1])
        assert pool_state(live) == before


def test_an_asynchronous_load_leaves_the_table_to_the_running_rows(live: BatchGenWorker) -> None:
    with stopped_at(live, 6) as batch:
        manager = live.gpu_paged_kv_cache_manager
        staying, leaving = batch[:1], batch[1:]
        live._put_sequences_onhold([live._local_to_uuid_map[i] for i in leaving])
        live._rebuild_page_table_for_batch(staying)
        ids = [live._local_to_global_id(i) for i in leaving]
        task = live._launch_async_load_new_sequences(leaving, [live._local_to_global_id(staying[0])])
        assert list(manager.slot_to_seq_id) == [live._local_to_global_id(staying[0])]
        task.wait()
        for local_idx, g in zip(leaving, ids, strict=True):
            tokens = live._get_sequence_by_local(local_idx).current_context_length - 1
            pairs = zip(gpu_content(live, g, tokens), host_content(live, g, tokens), strict=True)
            assert all(torch.equal(a, b) for a, b in pairs)
        live._release_gpu_kv_pages(leaving)
        live._launch_async_load_new_sequences(leaving, []).wait()
        assert list(manager.slot_to_seq_id) == []


def test_a_failing_capture_of_load_targets_restores_the_table(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker(model="tiny-dual", gpu_kv_pages=60, max_batch_size=4)
    with stopped_at(worker, 6) as batch:
        manager = worker.gpu_paged_kv_cache_manager
        rows = list(manager.slot_to_seq_id)
        with monkeypatch.context() as patch:
            patch.setattr(manager.auxiliary, "export_active_sequence_page_counts", lambda: torch.tensor([99]))
            with pytest.raises(RuntimeError, match="pages in the primary pool"):
                worker._prepare_dual_kv_load_pointers(manager, rows[:1], rows)
        assert list(manager.slot_to_seq_id) == rows
        with pytest.raises(RuntimeError, match="dual coordinator"):
            worker._prepare_dual_kv_load_pointers(manager.primary, rows[:1], rows)
        pointers = worker._prepare_dual_kv_load_pointers(manager, rows[:1], rows)
        view = worker.core_engine.host_paged_kv_worker_view
        worker.core_engine.host_paged_kv_worker_view = view.primary
        with pytest.raises(RuntimeError, match="index keys"):
            worker._launch_dual_host_kv_load(pointers)
        worker.core_engine.host_paged_kv_worker_view = view
        assert batch


def test_index_keys_are_never_left_behind(make_worker: MakeWorker) -> None:
    dual = make_worker(model="tiny-dual")
    plain = make_worker()
    assert plain._launch_aux_host_kv_load(torch.tensor([0])) is None
    dual._ensure_gpu_paged_kv_manager([8])
    dual.core_engine.host_paged_kv_worker_view_aux = None
    with pytest.raises(RuntimeError, match="index keys cannot be loaded"):
        dual._launch_aux_host_kv_load(torch.tensor([0]))


def test_a_load_needs_a_host_pool_and_the_right_rows(live: BatchGenWorker) -> None:
    with stopped_at(live, 3) as batch:
        manager = live.gpu_paged_kv_cache_manager
        ids = [live._local_to_global_id(i) for i in batch]
        with pytest.raises(RuntimeError, match="page table has rows"):
            live._load_host_kv_to_gpu(manager, ids[::-1])
        view, live.core_engine.host_paged_kv_worker_view = live.core_engine.host_paged_kv_worker_view, None
        with pytest.raises(RuntimeError, match="no host pool is bound"):
            live._load_host_kv_to_gpu(manager, ids)
        live.core_engine.host_paged_kv_worker_view = view


def test_releasing_gives_pages_and_state_slots_back_and_refuses_strangers(live: BatchGenWorker) -> None:
    with stopped_at(live, 3) as batch:
        seq = live._get_sequence_by_local(batch[0])
        free = live._get_gpu_kv_free_pages()
        pages = seq.gpu_pages_allocated
        live._release_gpu_kv_pages(batch[:1])
        assert live._get_gpu_kv_free_pages() == free + pages
        assert seq.gpu_pages_allocated == 0 and seq.global_idx not in live._sequences_with_gpu_kv
        assert seq.had_initial_gpu_reservation
        assert not live.core_engine.state_slot_pool.has(seq.global_idx)
        live._release_kda_state_slots([seq.global_idx])
        with pytest.raises(KeyError):
            live._release_gpu_kv_pages(batch[:1])


def test_destroying_the_pool_resets_every_reservation(live: BatchGenWorker) -> None:
    with stopped_at(live, 3) as batch:
        live._destroy_gpu_paged_kv_cache()
        assert not live._sequences_with_gpu_kv and live._get_gpu_kv_free_pages() == 0
        assert live._cuda_graph_manager is None and live._cuda_graph_adapter is None
        for local_idx in batch:
            seq = live._get_sequence_by_local(local_idx)
            assert seq.gpu_pages_allocated == 0 and not seq.had_initial_gpu_reservation
        assert live.core_engine.state_slot_pool.num_used <= 6 - len(batch)


def test_utilization_counts_this_nodes_pages_and_sequences(live: BatchGenWorker) -> None:
    assert live._get_host_kv_utilization()["free_percent"] == 100
    with stopped_at(live, 3) as batch:
        utilization = live._get_host_kv_utilization()
        used = sum(seq.host_pages_allocated for seq in live.global_batch)
        assert utilization["num_used_pages"] == used > 0
        assert live._get_host_kv_free_pages() == utilization["num_free_pages"] == 120 - used
        assert utilization["num_in_decode"] == len(batch)
        assert utilization["num_prefilled"] == 6 - len(batch)
        assert utilization["num_valid_sequences"] == 6
        assert utilization["free_percent"] == int((120 - used) / 120 * 100)
        (node,) = live._gather_host_kv_stats_by_node(live.core_engine.host_paged_kv_worker_view)
        assert (node.node_id, node.free, node.total) == (0, 120 - used, 120)


def test_the_watermark_fires_only_above_it_and_only_for_waiting_work(
    live: BatchGenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = {"pages": 71}
    view = live.core_engine.host_paged_kv_worker_view
    monkeypatch.setattr(view, "get_stats", lambda: KVStats(free["pages"], 100 - free["pages"], 100))
    monkeypatch.setattr(live, "_has_queued_work", lambda: True)
    assert live._check_host_kv_watermark_trigger()
    assert live._host_kv_page_stats == {"used": 29, "total": 100, "free_percent": 71, "num_nodes": 1}
    free["pages"] = 70
    assert not live._check_host_kv_watermark_trigger()
    free["pages"] = 71
    monkeypatch.setattr(live, "_has_queued_work", lambda: False)
    assert not live._check_host_kv_watermark_trigger()
    monkeypatch.setattr(live.global_batch, "has_status", lambda status: status == SequenceStatus.EVICTED)
    assert live._check_host_kv_watermark_trigger()
    live.args.enable_host_kv_eviction = False
    assert not live._check_host_kv_watermark_trigger()
    monkeypatch.setattr(live, "_has_queued_work", lambda: True)
    monkeypatch.setenv("BATCHGEN_ENABLE_DECODE_PREEMPTION", "0")
    assert not live._check_host_kv_watermark_trigger()


def test_the_watermark_decision_is_a_function_of_what_was_gathered(live: BatchGenWorker) -> None:
    with stopped_at(live, 3):
        nodes = {0: {"free_percent": 10}, 1: {"free_percent": 71}}
        assert not live._decide_watermark_trigger(nodes), "nothing waits"
        live._request_queue.append(random_requests(1)[0])
        assert live._decide_watermark_trigger(nodes)
        assert not live._decide_watermark_trigger({0: {"free_percent": 70}})
        live._request_queue.clear()


def test_migration_is_planned_from_what_was_gathered(
    live: BatchGenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stopped_at(live, 3, count=10), monkeypatch.context() as patch:
        held = {
            seq.uuid: seq.host_pages_allocated
            for seq in live.global_batch
            if seq.status == SequenceStatus.PREFILLED
        }
        utilization = live._get_host_kv_utilization()
        assert live._gather_migration_state() == [(utilization, held)] and len(held) > 1
        elsewhere = ({"node_id": 1, "num_used_pages": 0, "num_total_pages": 120}, {})

        def gather(out: list[Any], mine: Any) -> None:
            out[:] = [mine, elsewhere]

        patch.setattr("torch.distributed.all_gather_object", gather)
        patch.setattr("batchgen.batchgen_worker.NUM_GPUS_PER_NODE", 1)
        patch.setattr(live, "world_size", 2)
        before = pool_state(live)
        moves = live._plan_kv_migration()
        assert moves and {(source, target) for _, source, target in moves} == {(0, 1)}
        assert {uuid for uuid, _, _ in moves} <= held.keys() and moves == live._plan_kv_migration()
        assert pool_state(live) == before


def test_migration_rounds_never_share_a_rank_or_a_source_node(
    live: BatchGenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchgen.batchgen_worker.NUM_GPUS_PER_NODE", 2)
    moves = [("a", 0, 4), ("b", 1, 5), ("c", 2, 4), ("d", 3, 6), ("e", 2, 7)]
    rounds = live._group_migrations_for_parallel_execution(moves)
    assert sorted(m for r in rounds for m in r) == sorted(moves)
    for moved in rounds:
        ranks = [rank for _, source, target in moved for rank in (source, target)]
        assert len(ranks) == len(set(ranks))
        assert len({source // 2 for _, source, _ in moved}) == len(moved)
    assert live._group_migrations_for_parallel_execution([]) == []


def test_one_node_has_nothing_to_rebalance(live: BatchGenWorker) -> None:
    assert live._plan_kv_migration() == [] and live._rebalance_host_kv() == 0
    assert live._get_or_create_gloo_group() is live._get_or_create_gloo_group()
