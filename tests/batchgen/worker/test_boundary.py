"""Page boundaries: what rank 0 decides from gathered state, and how a decision is applied."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from batchgen import batchgen_worker
from batchgen.batchgen_worker import BatchGenWorker
from batchgen.continuous_batching import BoundaryDecisions, NodeHostStats
from batchgen.sequence import SequenceEntry, SequenceStatus
from batchgen.worker.sync import SyncCoordinator

from .conftest import MakeWorker, assert_nothing_held, by_id, random_requests, token_ids
from .test_kv_section import stopped_at


class Node:
    """One boundary of nodes with one rank each (one where nothing else is said): sequences by hand, the decision of the
    real worker."""

    def __init__(
        self, worker: BatchGenWorker, *, gpu_free: int, host_free: int, host_total: int = 100, nodes: int = 1
    ) -> None:
        self.worker = worker
        self.gpu_free = dict.fromkeys(range(nodes), gpu_free)
        self.hosts = [NodeHostStats(node, host_free, host_total) for node in range(nodes)]
        self.decoding: dict[str, dict[str, Any]] = {}
        self.waiting: dict[str, dict[str, Any]] = {}

    def add(self, uuid: str, *, priority: int = 0, rank: int = 0) -> SequenceEntry:
        seq = SequenceEntry(uuid, len(self.worker.global_batch), 4, 4, priority=priority)
        self.worker.global_batch.add_sequence(seq)
        self.worker.global_batch.assign_rank(uuid, rank)
        return seq

    def decodes(
        self,
        uuid: str,
        *,
        decoded: int,
        gpu: int = 4,
        more: int = 0,
        host: int = 10,
        grow: int = 0,
        done: bool = False,
        priority: int = 0,
        rank: int = 0,
    ) -> None:
        self.add(uuid, priority=priority, rank=rank)
        self.decoding[uuid] = {
            "decoded_length": decoded,
            "completed": done,
            "assigned_rank": rank,
            "gpu_pages_allocated": gpu,
            "host_pages_allocated": host,
            "additional_pages_needed": more,
            "host_growth_pages": grow,
        }

    def waits(
        self,
        uuid: str,
        *,
        decoded: int,
        pages: int,
        host: int = 10,
        status: SequenceStatus = SequenceStatus.ON_HOLD,
        rank: int = 0,
    ) -> None:
        self.add(uuid, rank=rank)
        self.waiting[uuid] = {
            "pages_needed": pages,
            "assigned_rank": rank,
            "status": int(status),
            "decoded_length": decoded,
            "host_pages_allocated": host,
        }

    def decide(self) -> BoundaryDecisions:
        return self.worker._compute_boundary_decisions(
            list(self.decoding), self.decoding, self.waiting, self.gpu_free, self.hosts
        )


@pytest.fixture
def worker(make_worker: MakeWorker) -> BatchGenWorker:
    return make_worker(max_batch_size=4)


def test_completed_sequences_leave_and_their_pages_pay_for_extensions(worker: BatchGenWorker) -> None:
    node = Node(worker, gpu_free=0, host_free=50)
    node.decodes("done", decoded=9, gpu=4, done=True)
    node.decodes("goes-on", decoded=5, more=4)
    decision = node.decide()
    assert decision.completed_uuids == ("done",) and decision.onhold_uuids == ()
    assert decision.seqs_needing_extension == ("goes-on",)
    assert decision.decode_uuids_final == decision.active_uuids == ("goes-on",)


def test_the_lowest_priority_then_the_shortest_goes_on_hold_for_the_rest(worker: BatchGenWorker) -> None:
    node = Node(worker, gpu_free=0, host_free=50)
    node.decodes("long", decoded=90, more=2)
    node.decodes("short", decoded=10, more=2)
    node.decodes("shortest-but-dear", decoded=1, more=2, priority=5)
    decision = node.decide()
    assert decision.onhold_uuids == ("short",)
    assert decision.decode_uuids_final == ("long", "shortest-but-dear")


def test_host_growth_evicts_the_shortest_and_a_held_sequence_may_be_it(worker: BatchGenWorker) -> None:
    node = Node(worker, gpu_free=50, host_free=4)
    node.decodes("grows", decoded=50, grow=8)
    node.decodes("other", decoded=40)
    node.waits("held", decoded=3, pages=2)
    decision = node.decide()
    assert decision.host_evicted_uuids == ("held",)
    assert (decision.host_growth_uuids, decision.host_growth_pages) == (("grows",), (8,))
    assert decision.growth_feasible
    assert decision.new_load_uuids == (), "an evicted sequence has nothing to load"


def test_growth_that_cannot_be_met_waits_for_sequences_that_never_ran(worker: BatchGenWorker) -> None:
    worker.args.enable_host_kv_eviction = False
    node = Node(worker, gpu_free=10, host_free=2)
    node.decodes("grows", decoded=50, grow=8)
    node.waits("fresh", decoded=1, pages=3, status=SequenceStatus.PREFILLED)
    decision = node.decide()
    assert decision.onhold_uuids == ("grows",) and decision.host_growth_uuids == ()
    assert decision.new_load_uuids == ("fresh",) and decision.scheduler_error is None


def test_growth_that_can_never_be_met_is_an_error_with_the_numbers(worker: BatchGenWorker) -> None:
    worker.args.enable_host_kv_eviction = False
    node = Node(worker, gpu_free=10, host_free=2)
    node.decodes("grows", decoded=50, grow=8)
    assert "8 host pages wanted by 1 sequences, 2 of 100 free" in (node.decide().scheduler_error or "")


def test_each_node_pays_for_its_own_growth_with_its_own_sequences(
    worker: BatchGenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batchgen_worker, "NUM_GPUS_PER_NODE", 1)
    monkeypatch.setattr(worker, "world_size", 2)
    worker.args.enable_host_kv_eviction = False
    node = Node(worker, gpu_free=10, host_free=4, nodes=2)
    node.decodes("too-much", decoded=50, grow=8)
    node.decodes("beside-it", decoded=40)
    node.decodes("elsewhere", decoded=30, grow=3, rank=1)
    node.waits("fresh", decoded=1, pages=3, status=SequenceStatus.PREFILLED)
    node.waits("held", decoded=1, pages=99)
    node.waits("fresh-elsewhere", decoded=1, pages=3, status=SequenceStatus.PREFILLED, rank=1)
    decision = node.decide()
    assert decision.onhold_uuids == ("too-much",), "it waits for what its own node has not run yet"
    assert (decision.host_growth_uuids, decision.host_growth_pages) == (("elsewhere",), (3,))
    assert decision.decode_uuids_final == ("beside-it", "elsewhere")
    assert set(decision.new_load_uuids) == {"fresh", "fresh-elsewhere"}


def test_what_waits_on_another_node_does_not_help(
    worker: BatchGenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batchgen_worker, "NUM_GPUS_PER_NODE", 1)
    monkeypatch.setattr(worker, "world_size", 2)
    worker.args.enable_host_kv_eviction = False
    node = Node(worker, gpu_free=10, host_free=4, nodes=2)
    node.decodes("too-much", decoded=50, grow=8)
    node.waits("fresh-elsewhere", decoded=1, pages=3, status=SequenceStatus.PREFILLED, rank=1)
    assert "node 0: 8 host pages wanted" in (node.decide().scheduler_error or "")


def test_loads_take_the_longest_that_fit_rows_and_pages(worker: BatchGenWorker) -> None:
    node = Node(worker, gpu_free=10, host_free=50)
    node.decodes("row", decoded=5)
    node.waits("too-large", decoded=99, pages=11)
    node.waits("long", decoded=50, pages=6)
    node.waits("mid", decoded=40, pages=2)
    node.waits("short", decoded=1, pages=1)
    node.waits("no-row-left", decoded=0, pages=1)
    assert node.decide().new_load_uuids == ("long", "mid", "short")


def test_a_sequence_put_on_hold_is_not_loaded_again_at_once(worker: BatchGenWorker) -> None:
    node = Node(worker, gpu_free=0, host_free=50)
    node.decodes("a", decoded=10, gpu=9, more=1)
    node.decodes("b", decoded=20, gpu=1, more=1)
    decision = node.decide()
    assert decision.onhold_uuids == ("a",) and decision.new_load_uuids == ()


def test_an_extension_refused_by_a_pool_puts_the_whole_list_on_hold(make_worker: MakeWorker) -> None:
    worker = make_worker(gpu_kv_pages=30, host_kv_pages=200)
    with stopped_at(worker, 1) as batch:
        uuids = [worker._local_to_uuid_map[i] for i in batch]
        worker.gpu_paged_kv_cache_manager.allocate_pages_for_sequences(
            [77], [4 * worker._get_gpu_kv_free_pages()]
        )
        for uuid in uuids:
            worker.global_batch.get_sequence(uuid).gpu_pages_allocated -= 1
        decision = BoundaryDecisions(
            active_uuids=tuple(uuids),
            seqs_needing_extension=tuple(uuids[:2]),
            decode_uuids_final=tuple(uuids),
        )
        for uuid in uuids:
            worker.global_batch.get_sequence(uuid).gpu_pages_allocated += 1
        seq = worker.global_batch.get_sequence(uuids[0])
        seq.current_context_length += 40
        assert worker._boundary_execute_decisions(decision) == uuids[2:]
        assert all(worker.global_batch.get_sequence(u).status == SequenceStatus.ON_HOLD for u in uuids[:2])


def test_ranks_that_enter_a_boundary_with_other_sequences_are_told_apart(
    worker: BatchGenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.world_size = 2

    def gather(out: list[Any], mine: Any) -> None:
        out[:] = [["a", "b"], mine]

    monkeypatch.setattr("torch.distributed.all_gather_object", gather)
    worker._check_boundary_desync(["a", "b"])
    with pytest.raises(RuntimeError, match=r"\[SCHED_INVARIANT\] rank 1 decodes \['b', 'a'\]"):
        worker._check_boundary_desync(["b", "a"])
    worker.world_size = 1


def test_the_desync_check_runs_at_boundaries_in_debug(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batchgen_worker, "BATCHGEN_CB_DEBUG", True)
    worker = make_worker(gpu_kv_pages=40)
    calls: list[Any] = []
    # On the handler: who calls it depends on which slices are out of the worker.
    monkeypatch.setattr(SyncCoordinator, "_check_boundary_desync", lambda self, uuids: calls.append(uuids))
    worker.generate(random_requests(8, seed=30, new=(20, 30)))
    assert len(calls) == worker.stats()["boundaries"] > 0


def test_a_decision_that_fails_on_rank_0_fails_on_every_rank(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker()

    def broken(*args: Any) -> BoundaryDecisions:
        raise KeyError("lost")

    monkeypatch.setattr(worker, "_compute_boundary_decisions", broken)
    with pytest.raises(RuntimeError, match="KeyError: 'lost'"):
        worker.generate(random_requests(4, seed=31, new=(20, 30)))
    assert_nothing_held(worker)


def test_waiting_work_and_idle_host_pages_break_the_decode_for_a_prefill(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batchgen_worker, "REP_DETECTION", False)
    # The queue is longer than the slots, and one sequence outlives the others of its wave by far.
    requests = random_requests(3, seed=32, prompt=(4, 6), new=(4, 6), ignore_eos=True)
    requests += random_requests(1, seed=33, prompt=(4, 6), new=(120, 120), ignore_eos=True)
    requests = [type(r)(f"w{i}", r.prompt_token_ids, r.sampling) for i, r in enumerate(requests)]
    late = random_requests(6, seed=34, prompt=(4, 6), new=(30, 30), ignore_eos=True)
    worker = make_worker(max_pool_size=4, host_kv_watermark=40, host_kv_pages=160)
    results = by_id(worker.generate([*requests, *late]))
    stats = worker.stats()
    assert stats["watermark_breaks"] > 0 and stats["prefill_phases"] > 1 and stats["reloads"] > 0
    assert len(results) == 10 and len(results["w3"].token_ids) == 120
    assert_nothing_held(worker)


def test_preemption_can_be_switched_off(make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHGEN_ENABLE_DECODE_PREEMPTION", "0")
    worker = make_worker(max_pool_size=4, host_kv_watermark=1)
    assert len(worker.generate(random_requests(10, seed=35))) == 10
    assert "watermark_breaks" not in worker.stats()


def test_eviction_twice_keeps_the_prompt_and_the_tokens_apart(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batchgen_worker, "REP_DETECTION", False)
    requests = random_requests(16, seed=36, prompt=(4, 12), new=(60, 80), ignore_eos=True)
    tight = make_worker(
        row_exact=True,
        gpu_kv_pages=40,
        host_kv_pages=45,
        host_kv_chunk_size=4,
        adaptive_host_kv_chunk=False,
        host_kv_eviction_watermark=0,
    )
    twice: dict[str, int] = {}
    evict = tight._evict_sequences

    def count(uuids: list[str]) -> None:
        for uuid in uuids:
            twice[uuid] = twice.get(uuid, 0) + 1
        evict(uuids)
        for uuid in uuids:
            seq = tight.global_batch.get_sequence(uuid)
            assert seq.evicted_token_ids.shape[1] == seq.prompt_length == seq.current_context_length

    tight._evict_sequences = count  # type: ignore[method-assign]
    assert token_ids(tight.generate(requests)) == token_ids(make_worker(row_exact=True).generate(requests))
    assert max(twice.values()) >= 2, twice
    assert_nothing_held(tight)


def test_a_host_append_error_is_raised_at_the_boundary_and_named(make_worker: MakeWorker) -> None:
    class Broken:
        def wait(self) -> None:
            raise OSError("host page lost")

    worker = make_worker()
    worker._pending_kv_append_tasks = [Broken(), None]
    assert worker._wait_pending_kv_append_tasks(defer_errors=True) == 2
    assert worker._pending_kv_append_tasks == []
    with pytest.raises(RuntimeError, match="rank 0: OSError: host page lost"):
        worker._wait_pending_kv_append_tasks(sync_distributed_errors=True)
    assert worker._wait_pending_kv_append_tasks(sync_distributed_errors=True) == 0


def test_appends_for_strangers_bad_positions_and_over_budget_are_refused(make_worker: MakeWorker) -> None:
    worker = make_worker(gpu_kv_pages=40)
    with stopped_at(worker, 1) as batch:
        seq = worker._get_sequence_by_local(batch[0])
        for ids, positions, message in [
            ([10**6], [0], "unknown sequence"),
            ([seq.global_idx], [-1], "negative position"),
            ([seq.global_idx], [seq.kv_token_budget], "over its budget"),
        ]:
            with pytest.raises(RuntimeError, match=message):
                worker._ensure_host_kv_append_capacity(ids, positions)
        pages, seq.host_pages_allocated = seq.host_pages_allocated, 0
        with pytest.raises(RuntimeError, match="no host pages"):
            worker._ensure_host_kv_append_capacity([seq.global_idx], [0])
        seq.host_pages_allocated = pages


def test_host_pages_grow_on_demand_within_the_budget(make_worker: MakeWorker) -> None:
    worker = make_worker(gpu_kv_pages=40, host_kv_chunk_size=4, adaptive_host_kv_chunk=False)
    with stopped_at(worker, 1) as batch:
        seq = worker._get_sequence_by_local(batch[0])
        before = seq.host_pages_allocated
        worker._ensure_host_kv_append_capacity([seq.global_idx], [seq.kv_token_budget - 1])
        assert seq.host_pages_allocated * 4 >= seq.kv_token_budget > before * 4
        assert (
            worker.core_engine.host_paged_kv_worker_view.page_count(seq.global_idx)
            == seq.host_pages_allocated
        )


@pytest.mark.parametrize("setting", [("BATCHGEN_SYNC_KV", "1"), ("BATCHGEN_KV_OFFLOAD_UVA_KERNEL", "0")])
@pytest.mark.parametrize("model", ["tiny", "tiny-dual"])
def test_every_way_to_append_gives_the_same(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch, setting: tuple[str, str], model: str
) -> None:
    requests = random_requests(8, seed=37, new=(20, 30))
    options = {"model": model, "gpu_kv_pages": 40, "row_exact": True}
    expected = token_ids(make_worker(**options).generate(requests))
    monkeypatch.setenv(*setting)
    worker = make_worker(**options)
    assert token_ids(worker.generate(requests)) == expected
    assert worker.stats()["reloads"] > 0


def test_too_many_pending_appends_are_waited_for(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batchgen_worker, "MAX_PENDING_KV_APPENDS", 2)
    worker = make_worker()
    longest = 0
    flush = worker._flush_deferred_kv_to_host

    def watched() -> None:
        nonlocal longest
        flush()
        longest = max(longest, len(worker._pending_kv_append_tasks))

    monkeypatch.setattr(worker, "_flush_deferred_kv_to_host", watched)
    worker.generate(random_requests(4, seed=38, new=(20, 20), ignore_eos=True))
    assert longest == 2


def test_nan_keys_stop_the_run_before_they_reach_the_host(make_worker: MakeWorker) -> None:
    worker = make_worker()
    with pytest.raises(RuntimeError, match="NaN in the keys of layer 0"):
        worker._append_decode_kv_to_host_async([(0, torch.tensor([[[float("nan")]]]), None)], [0], [0])


def test_graph_compare_reports_and_never_changes_the_result(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = random_requests(6, seed=39, new=(10, 20))
    expected = token_ids(make_worker().generate(requests))
    monkeypatch.setenv("BATCHGEN_DECODE_GRAPH_COMPARE", "1")
    worker = make_worker()
    assert token_ids(worker.generate(requests)) == expected
    stats = worker.stats()
    assert stats["graph_compares"] == stats["graph_steps"] > 0 and "graph_compare_failures" not in stats


def test_a_graph_that_differs_from_eager_is_counted_or_fatal_as_asked(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHGEN_DECODE_GRAPH_COMPARE", "1")
    monkeypatch.setenv("BATCHGEN_DECODE_GRAPH_COMPARE_FAIL", "1")
    worker = make_worker()

    def plant(ensure=worker._ensure_cuda_graph_adapter):
        ensure()
        reference = worker._cuda_graph_adapter.run_eager_reference
        worker._cuda_graph_adapter.run_eager_reference = lambda *a: {
            key: value + 1 if key == "logits" else value for key, value in reference(*a).items()
        }

    monkeypatch.setattr(worker, "_ensure_cuda_graph_adapter", plant)
    with pytest.raises(RuntimeError, match="graph replay and eager run differ"):
        worker.generate(random_requests(2, seed=40, new=(10, 10)))
    assert worker.stats()["graph_compare_failures"] == 1


def test_a_slow_step_dumps_the_stacks_once(
    make_worker: MakeWorker, capfd: pytest.CaptureFixture[str]
) -> None:
    import time

    worker = make_worker()
    worker._watchdog.timeout = 0.05
    worker._enable_decode_watchdog()
    with worker.disable_watchdog():
        time.sleep(0.15)
    assert worker._watchdog.fired == 0
    time.sleep(0.2)
    worker._disable_decode_watchdog()
    assert worker.stats()["watchdog_fired"] == 1
    assert "Thread" in capfd.readouterr().err


def test_a_broken_context_length_is_loud(make_worker: MakeWorker) -> None:
    worker = make_worker()
    seq = SequenceEntry("x", 0, 4, 4)
    worker._check_context_invariant([seq])
    seq.current_context_length += 1
    with pytest.raises(RuntimeError, match=r"\[CTX_INVARIANT\] sequence x has context 5"):
        worker._check_context_invariant([seq])


def test_the_step_assertion_sees_a_page_that_is_not_in_the_metadata(make_worker: MakeWorker) -> None:
    worker = make_worker(gpu_kv_pages=40)
    with stopped_at(worker, 2) as batch:
        uuids = [worker._local_to_uuid_map[i] for i in batch]
        worker._assert_step_invariants(uuids, batch)
        seq = worker._get_sequence_by_local(batch[0])
        seq.gpu_pages_allocated += 1
        with pytest.raises(AssertionError, match="pages in the pool"):
            worker._assert_step_invariants(uuids, batch)
        seq.gpu_pages_allocated -= 1
        with pytest.raises(AssertionError, match="page table rows"):
            worker._assert_step_invariants(uuids, batch[::-1])
