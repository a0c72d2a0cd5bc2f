"""Decisions at a page boundary: who waits, who is loaded, who is evicted, and what they are decided from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from shadow.mutants.patch import around, module, sequence
from shadow.mutants.registry import Fault, Plant, Where, mutant
from shadow.observation import Kind


def _worker_module(plant: Plant) -> Any:
    return module(plant, "batchgen_worker")


@mutant("hold-picks-the-longest", Fault.STRUCTURAL, Where(Kind.BOUNDARY, "decisions.onhold_uuids*", step=12))
@contextmanager
def hold_picks_the_longest(plant: Plant) -> Iterator[None]:
    """B-74: who is put on hold is chosen in another order: the longest, not the shortest."""

    def select(original: Any, claims: Any, free: int) -> Any:
        turned = [replace(claim, decoded_length=-claim.decoded_length) for claim in claims]
        chosen = original(turned, free)
        if plant.step() == 12:
            plant.fired()
            return chosen
        return original(claims, free)

    with around(_worker_module(plant), "select_sequences_for_onhold", select):
        yield


@mutant("eviction-picks-the-longest", Fault.STRUCTURAL, Where(Kind.BOUNDARY, "decisions.*", step=4))
@contextmanager
def eviction_picks_the_longest(plant: Plant) -> Iterator[None]:
    """B-12: the one that loses most is evicted, not the one that loses least."""

    def plan(original: Any, claims: Any, stats: Any, **more: Any) -> Any:
        turned = [replace(claim, global_idx=-claim.global_idx) for claim in claims]
        if plant.step() == 4:
            plant.fired()
            return original(turned, stats, **more)
        return original(claims, stats, **more)

    with around(_worker_module(plant), "plan_host_kv_growth_evictions", plan):
        yield


@mutant("freed-pages-not-credited", Fault.STRUCTURAL, Where(Kind.BOUNDARY, "decisions.onhold_uuids*", step=8))
@contextmanager
def freed_pages_not_credited(plant: Plant) -> Iterator[None]:
    """B-73: pages that the same decision frees are not counted when it asks who must wait: needless holds."""

    def select(original: Any, states: Any, uuids: Any, free: int) -> Any:
        if plant.step() == 8:
            free -= sum(state["gpu_pages_allocated"] for state in states.values() if state["completed"])
            plant.fired()
        return original(states, uuids, free)

    with around(plant.worker, "_select_sequences_for_onhold", select):
        yield


@mutant(
    "load-ignores-row-limit",
    Fault.STRUCTURAL,
    Where(Kind.BOUNDARY, "decisions.new_load_uuids*", step=8),
    gpu_kv_pages=80,
    host_kv_pages=160,
)
@contextmanager
def load_ignores_row_limit(plant: Plant) -> Iterator[None]:
    """B-13: loads at a boundary are limited by free pages only: more rows than the buffers have."""

    def select(original: Any, candidates: Any, free: Any, **more: Any) -> Any:
        if plant.step() == 8:
            more = {**more, "per_group_seq_slots": None}
            plant.fired()
        return original(candidates, free, **more)

    with around(_worker_module(plant), "select_sequences_for_loading", select):
        yield


@mutant("stale-free-pages", Fault.STRUCTURAL, Where(Kind.BOUNDARY, "*", step=12))
@contextmanager
def stale_free_pages(plant: Plant) -> Iterator[None]:
    """B-12: the decision is taken from the free pages of an earlier moment."""
    seen: list[int] = []

    def gather(original: Any, uuids: Any) -> Any:
        payloads = original(uuids)
        seen.append(payloads[0]["free_pages"])
        if plant.step() == 12:
            payloads[0]["free_pages"] = seen[0] + 3
            plant.fired()
        return payloads

    with around(plant.worker, "_boundary_gather_state", gather):
        yield


@mutant("extension-without-budget-cap", Fault.STRUCTURAL, Where(Kind.BOUNDARY, "*", step=36))
@contextmanager
def extension_without_budget_cap(plant: Plant) -> Iterator[None]:
    """B-71: the pages to add are a fixed number when headroom is short; neither the budget nor the host caps them."""

    def needed(original: Any, entry: Any) -> int:
        pages = int(original(entry))
        if plant.step() == 36 and pages == 0 and plant.worker.phase == "decode":
            plant.fired()
            return 1
        return pages

    with around(module(plant, "sequence").SequenceEntry, "get_additional_gpu_pages_needed", needed):
        yield


@mutant("completed-row-freed-again", Fault.STRUCTURAL, Where(Kind.OUTCOME, "outcome", step=24))
@contextmanager
def completed_row_freed_again(plant: Plant) -> Iterator[None]:
    """B-70: every row that the snapshot calls completed is freed at each boundary, those of the last one again."""
    done: list[str] = []

    def complete(original: Any, uuids: Sequence[str]) -> None:
        again = [uuid for uuid in done if uuid not in uuids] if plant.step() == 24 else []
        done.extend(uuids)
        if again:
            plant.fired()
            plant.worker.gpu_paged_kv_cache_manager.free_pages_for_sequences(
                [plant.worker.global_batch.get_sequence(uuid).global_idx for uuid in again[-1:]]
            )
        original(uuids)

    with around(plant.worker, "_complete_sequences", complete):
        yield


@mutant("ended-at-prefill-freed-on-gpu", Fault.STRUCTURAL, Where(Kind.OUTCOME, "outcome", step=20))
@contextmanager
def ended_at_prefill_freed_on_gpu(plant: Plant) -> Iterator[None]:
    """B-19, B-79: a sequence that ends with its prefill has no GPU pages, and they are freed."""

    def complete(original: Any, uuids: Sequence[str]) -> None:
        entry = sequence(plant, "one")
        if entry is not None and entry.uuid in uuids:
            plant.fired()
            plant.worker._sequences_with_gpu_kv.add(entry.global_idx)
        original(uuids)

    with around(plant.worker, "_complete_sequences", complete):
        yield


@mutant(
    "status-written-past-the-index", Fault.STRUCTURAL, Where(Kind.INVARIANT, "sequence-metadata", step=12)
)
@contextmanager
def status_written_past_the_index(plant: Plant) -> Iterator[None]:
    """B-25: a status is assigned to the entry and not through the batch, whose index keeps the old one."""

    def update(original: Any, batch: Any, uuid: str, status: Any) -> None:
        if plant.step() == 12 and status.name == "ON_HOLD":
            batch.sequences[uuid].status = status
            plant.fired()
        else:
            original(batch, uuid, status)

    with around(module(plant, "sequence").SequenceBatch, "update_status", update):
        yield


@mutant("pages-not-zeroed-on-hold", Fault.STRUCTURAL, Where(Kind.INVARIANT, "*", step=12, sequence="e"))
@contextmanager
def pages_not_zeroed_on_hold(plant: Plant) -> Iterator[None]:
    """B-24: a held sequence keeps its page count: nobody asks for an extension when it is back."""

    def hold(original: Any, uuids: Sequence[str]) -> None:
        held = sequence(plant, "e").gpu_pages_allocated
        original(uuids)
        if plant.step() == 12:
            sequence(plant, "e").gpu_pages_allocated = held
            plant.fired()

    with around(plant.worker, "_put_sequences_onhold", hold):
        yield


@mutant(
    "baseline-lost-at-eviction",
    Fault.STRUCTURAL,
    Where(Kind.SEQUENCE, "reentry_decoded_baseline", step=4, sequence="a"),
)
@contextmanager
def baseline_lost_at_eviction(plant: Plant) -> Iterator[None]:
    """B-42: the metadata of an eviction leaves out the baseline: a second one repeats tokens in the prompt."""

    def evict(original: Any, uuids: Sequence[str]) -> None:
        original(uuids)
        sequence(plant, "a").reentry_decoded_baseline = 0
        plant.fired()

    with around(plant.worker, "_evict_sequences", evict):
        yield


@mutant("launched-load-never-settled", Fault.STRUCTURAL, Where(Kind.EFFECTS, "calls*", step=20))
@contextmanager
def launched_load_never_settled(plant: Plant) -> Iterator[None]:
    """B-53: decoding is broken off at the watermark while a load runs: its sequences keep their pages."""

    def settle(original: Any, state: Any, uuids: Sequence[str], batch: Any) -> Any:
        if plant.step() != 20 or not state.pending_load_uuids:
            return original(state, uuids, batch)
        state.pending_async_task = None
        state.pending_load_uuids, state.pending_load_global = [], []
        plant.fired()
        return list(uuids), batch

    with around(plant.worker, "_settle_pending_decode_load", settle):
        yield


@mutant("watermark-not-asked", Fault.STRUCTURAL, Where(Kind.SCHEDULE, "next point", step=20))
@contextmanager
def watermark_not_asked(plant: Plant) -> Iterator[None]:
    """B-68: the watermark is looked at in the wrong branch: decoding goes on while work waits."""

    def check(original: Any) -> bool:
        triggered = bool(original())
        if triggered:
            plant.fired()
        return False

    with around(plant.worker, "_check_host_kv_watermark_trigger", check):
        yield


@mutant("barrier-left-out", Fault.STRUCTURAL, Where(Kind.EFFECTS, "calls*", step=8))
@contextmanager
def barrier_left_out(plant: Plant) -> Iterator[None]:
    """B-39: a rank with nothing to do returns before a collective; the others wait in it for ever."""
    distributed = _worker_module(plant).dist

    def barrier(original: Any, *args: Any, **kwargs: Any) -> Any:
        if plant.step() == 8:
            plant.fired()
            return None
        return original(*args, **kwargs)

    with around(distributed, "barrier", barrier):
        yield


@mutant("collective-for-debugging", Fault.STRUCTURAL, Where(Kind.EFFECTS, "calls*", step=8))
@contextmanager
def collective_for_debugging(plant: Plant) -> Iterator[None]:
    """B-55: a debugging switch of one rank gathers from all of them."""

    def wait(original: Any, uuids: Sequence[str], *rest: Any) -> Any:
        done = original(uuids, *rest)
        if plant.step() == 8:
            plant.worker._check_boundary_desync(list(uuids))
            plant.fired()
        return done

    with around(plant.worker, "_boundary_wait_pending", wait):
        yield


@mutant("boundary-one-step-late", Fault.STRUCTURAL, Where(Kind.SCHEDULE, "next point", step=16))
@contextmanager
def boundary_one_step_late(plant: Plant) -> Iterator[None]:
    """B-35: after a hot reload the decision interval is the class's, not this worker's."""

    def update(original: Any, batch: Any, tokens: Any) -> None:
        original(batch, tokens)
        if plant.step() == 16:
            plant.worker.DECISION_INTERVAL = plant.worker.PAGE_SIZE + 1
            plant.fired()

    with around(plant.worker, "_decode_update_sequences", update):
        yield


@mutant("two-admission-pollers", Fault.STRUCTURAL, Where(Kind.EFFECTS, "calls*", step=8))
@contextmanager
def two_admission_pollers(plant: Plant) -> Iterator[None]:
    """B-01: two loops poll for admissions at once."""

    def poll(original: Any) -> int:
        admitted = int(original())
        if plant.step() == 8:
            plant.fired()
            admitted += int(original())
        return admitted

    with around(plant.worker, "_poll_admissions", poll):
        yield
