"""What the probes see of a real worker: that they change nothing, and that each names its own kind of fault."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from batchgen.attention import AttnWrapperBase
from batchgen.sequence import SequenceBatch, SequenceStatus
from shadow.diff import Mismatch, compare_events
from shadow.observation import Calls, Event, Kind, Pages, Point, Row, Rows, Severity, Vectors
from shadow.observe import PROBES
from shadow.observe.plans import rows_of
from shadow.observe.sketch import page_sketches, position_vectors, sketch
from shadow.pairing import BATCH_ORDER, BUCKET, SAME, Pairing

from ...batchgen.worker.conftest import random_requests
from .support import Change, Run, generate
from .test_invariants import cell, free_list, pool, relisting, row_of, setting

REQUESTS = random_requests(14, seed=12, prompt=(10, 40), new=(10, 30), ignore_eos=True)
FEW = random_requests(6, seed=3, prompt=(9, 14), new=(6, 28), ignore_eos=True)


@pytest.mark.parametrize("model", ["tiny", "tiny-dual", "tiny-hybrid"])
@pytest.mark.parametrize("graphs", [True, False], ids=["replayed", "eager"])
def test_a_worker_that_is_watched_does_what_it_does_alone(model: str, graphs: bool) -> None:
    alone, watched = (
        generate(REQUESTS, observed=observed, model=model, cuda_graphs=graphs, layers=(0, 1))
        for observed in (False, True)
    )
    assert alone.results == watched.results
    assert alone.stats == watched.stats, "side effects are counted by the worker"
    assert watched.violated() == {}


def test_every_hook_is_taken_back() -> None:
    before = dict(vars(AttnWrapperBase))
    collective = torch.distributed.all_reduce
    generate(FEW, layers=(0,))
    assert {name: vars(AttnWrapperBase)[name] for name in before} == before
    assert torch.distributed.all_reduce is collective


@pytest.fixture(scope="module")
def honest() -> Run:
    return generate(FEW, model="tiny-dual", layers=(1,))


@pytest.fixture(scope="module")
def hybrid() -> Run:
    return generate(FEW, model="tiny-hybrid", layers=(1,))


def test_every_probe_has_seen_something(honest: Run, hybrid: Run) -> None:
    assert {probe.kind for probe in PROBES} <= honest.kinds() | hybrid.kinds()
    assert honest.unobservable == {"state": "the model keeps no recurrent state"}
    assert "state" not in hybrid.unobservable


def test_two_runs_of_one_worker_are_equal_in_every_value(honest: Run) -> None:
    again = generate(FEW, model="tiny-dual", layers=(1,))
    assert differences(honest, again) == []


@pytest.mark.parametrize(
    ("pairing", "options"),
    [
        (BUCKET, {"cuda_graphs": False}),
        (BUCKET, {"cuda_graph_num_buckets": 8}),
        (BATCH_ORDER, {"reverse": True}),
    ],
    ids=["eager", "other buckets", "batch order"],
)
def test_sides_that_differ_by_intent_differ_in_nothing_else(
    pairing: Pairing, options: dict[str, Any]
) -> None:
    roomy: dict[str, Any] = {"row_exact": True, "gpu_kv_pages": 200, "host_kv_pages": 400}
    requests = FEW[::-1] if options.pop("reverse", False) else FEW
    assert differences(generate(FEW, **roomy), generate(requests, **roomy, **options), pairing) == []


def differences(legacy: Run, candidate: Run, pairing: Pairing = SAME) -> list[Mismatch]:
    assert [event.point for event in legacy.events] == [event.point for event in candidate.events]
    pairs = zip(legacy.events, candidate.events, strict=True)
    return [found for pair in pairs for found in compare_events(*pair, pairing).mismatches]


def first_of(run: Run, point: Point) -> Event:
    return next(event for event in run.events if event.point is point)


def of_kind(event: Event, kind: Kind) -> dict[tuple[str | None, str], Any]:
    return {(key.sequence, key.field): value for key, value in event.values.items() if key.kind is kind}


# what is seen of an honest run


def test_launch_says_which_bucket_and_why(honest: Run) -> None:
    launch = of_kind(first_of(honest, Point.DECODE), Kind.LAUNCH)
    assert launch[None, "mode"] == "replay" and launch[None, "reason"] == "ok"
    assert launch[None, "bucket"] >= launch[None, "rows"] == 6
    eager = generate(FEW[:2], cuda_graphs=False)
    launch = of_kind(first_of(eager, Point.DECODE), Kind.LAUNCH)
    assert (launch[None, "mode"], launch[None, "bucket"], launch[None, "reason"]) == (
        "eager",
        None,
        "disabled",
    )


def test_a_reference_run_beside_the_replay_is_not_taken_for_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHGEN_DECODE_GRAPH_COMPARE", "1")
    run = generate(FEW[:3], layers=(0,))
    assert run.stats["graph_compares"] == run.stats["decode_steps"] and run.violated() == {}
    modes = {of_kind(event, Kind.LAUNCH)[None, "mode"] for event in run.events if event.point is Point.DECODE}
    assert modes == {"replay"}
    monkeypatch.delenv("BATCHGEN_DECODE_GRAPH_COMPARE")
    alone = generate(FEW[:3], layers=(0,))
    others = {f.field for f in differences(alone, run)}
    assert others == {"stats.graph_compares"}, others


def test_bindings_name_objects_by_their_role(honest: Run) -> None:
    bound = of_kind(first_of(honest, Point.DECODE), Kind.BINDING)
    assert bound[None, "gpu_paged_kv_manager_primary"] == "primary pool"
    assert bound[None, "gpu_paged_kv_cache_manager"] == "GPU manager"
    assert bound[None, "gpu_paged_kv_manager_aux"] == "auxiliary pool"
    assert bound[None, "host_paged_kv_worker_view"] == "host view"
    assert bound[None, "kv_append_callback"] == "callable"
    assert bound[None, "phase"] == "decode"
    assert isinstance(bound[None, "cur_batch"], Rows)
    assert bound["r0", "cache_seqlens"] == bound["r0", "position_ids"] + 1


def test_effects_are_in_order_and_name_sequences(honest: Run) -> None:
    calls: list[str] = []
    for event in honest.events:
        effects = of_kind(event, Kind.EFFECTS)[None, "calls"]
        assert isinstance(effects, Calls)
        calls += map(str, effects.calls)
    order = [
        "host.primary.register_sequences(r0, r1, r2, r3, r4, r5)",
        "status(r0, PREFILLED)",
        "status(r0, IN_DECODE)",
        "status(r0, COMPLETED)",
    ]
    assert [calls.index(call) for call in order] == sorted(calls.index(call) for call in order)
    allocated = [call for call in calls if call.startswith("primary.allocate_pages_for_sequences(r0: ")]
    mirrored = [call for call in calls if call.startswith("auxiliary.allocate_pages_for_sequences(r0: ")]
    assert len(allocated) == len(mirrored) == 1
    appended = "host.primary.async_append_decode_kv_to_host_batched_kernel(r0: "
    assert any(call.startswith(appended) and call.endswith(" layers)") for call in calls)
    assert any(call.startswith("dist.all_gather_object(") for call in calls)


def test_what_happens_to_a_picture_of_the_sequences_is_no_effect(honest: Run) -> None:
    """A plan that is being made puts sequences on hold in a batch of its own; the worker's stay as they are."""

    def plan(worker: Any) -> Callable[[], None]:
        picture = SequenceBatch()
        entry = copy.copy(next(iter(worker.global_batch)))
        picture.add_sequence(entry)
        picture.update_status(entry.uuid, SequenceStatus.ON_HOLD)
        return lambda: None

    run = generate(FEW, model="tiny-dual", layers=(1,), changes=[("a plan is made", plan)])
    assert run.broken and differences(honest, run) == []


def test_a_step_writes_one_position_a_row(honest: Run) -> None:
    event = first_of(honest, Point.DECODE)
    written = of_kind(event, Kind.WRITE_SET)
    bound = of_kind(event, Kind.BINDING)
    for name in ("primary", "auxiliary"):
        assert written["r2", f"{name}.positions"] == (bound["r2", "position_ids"],)
        assert written[None, f"{name}.free"] == written[None, f"{name}.scratch"] == ()


def test_the_host_is_read_whole_at_first_and_at_boundaries(honest: Run) -> None:
    decodes = [event for event in honest.events if event.point is Point.DECODE]
    assert ("r0", "host.primary.k") in of_kind(decodes[0], Kind.HOST_KV)
    appended = of_kind(decodes[1], Kind.HOST_KV)["r0", "host.primary.k.appended"]
    kv_len = of_kind(decodes[1], Kind.PAGE_TABLE)["r0", "kv_len"]
    assert appended.first == kv_len - 2, (
        "this step's own position is handed over after the tokens are selected"
    )
    written = of_kind(decodes[0], Kind.KV)["r0", "primary.k.written"]
    assert np.array_equal(appended.values, written.values), "what the step before wrote is now on the host"
    assert ("r1", "host.auxiliary.k") in of_kind(first_of(honest, Point.BOUNDARY), Kind.HOST_KV)


def test_inputs_of_a_decision_come_before_the_decision(honest: Run) -> None:
    fields = [key.field for key in first_of(honest, Point.DECISIONS).values if key.kind is Kind.BOUNDARY]
    assert fields[-1] == "decisions" and "inputs.global_seq_state" in fields


def test_states_are_seen_by_sequence_and_recurrent_layer_in_prefill_and_decode(hybrid: Run) -> None:
    for point in (Point.PREFILL, Point.DECODE):
        states = of_kind(first_of(hybrid, point), Kind.STATE)
        assert set(states) == {(f"r{n}", "state") for n in range(6)}
        assert all(content.values.shape == (2, 1) for content in states.values())
    lengths = {label: content.first for (label, _), content in states.items()}
    assert lengths == {r.custom_id: len(r.prompt_token_ids) for r in FEW}


def test_layers_are_seen_row_by_row_in_prefill_and_decode(honest: Run) -> None:
    for point in (Point.PREFILL, Point.DECODE):
        event = first_of(honest, point)
        rows = {key.sequence: value for key, value in event.values.items() if key.kind is Kind.LAYER}
        assert set(rows) == {f"r{n}" for n in range(6)}
        assert {key.layer for key in event.values if key.kind is Kind.LAYER} == {1}
        assert all(isinstance(row, Row) and row.values.ndim == 1 for row in rows.values())


# faults, each for one event on one side


def shortened(worker: Any) -> Callable[[], None]:
    """The plan of row 1 covers one position less."""
    from .test_invariants import PLANS

    return cell(lambda _: PLANS[-1].kv_len, 1, PLANS[-1].kv_len[1] - 1)(worker)


def host_byte(worker: Any) -> Callable[[], None]:
    view = worker.core_engine.host_paged_kv_worker_view.primary
    page = view._pages[AttnWrapperBase.cur_batch[1]][0]
    return cell(lambda _: view._segment.keys, (1, page, 2), 9.0)(worker)


def page_beyond_the_pool(worker: Any) -> Callable[[], None]:
    return cell(lambda w: pool(w).gpu_table, (1, 0), 5000)(worker)


def pending_position(worker: Any) -> Callable[[], None]:
    ids, positions = worker._deferred_kv_batch
    before = worker._deferred_kv_batch
    worker._deferred_kv_batch = (ids, [positions[0], positions[1] + 1, *positions[2:]])

    def undo() -> None:
        worker._deferred_kv_batch = before

    return undo


def reversed_free_list(worker: Any) -> Callable[[], None] | None:
    return relisting(free_list(worker), list.reverse) if len(free_list(worker)) > 1 else None


def write_to_a_free_page(worker: Any) -> Callable[[], None] | None:
    free = free_list(worker)
    return cell(lambda w: pool(w).k_cache, (1, free[0], 2), 0.5)(worker) if free else None


def other_text(worker: Any) -> Callable[[], None]:
    return setting(row_of(worker, 1), "text", lambda _: "x")


LIVE, LATENT, HYGIENE = Severity.LIVE, Severity.LATENT, Severity.HYGIENE
FAULTS: list[tuple[Kind, Severity, Change, str | None, str]] = [
    # kind, severity, how, sequence, start of the field
    (Kind.HYGIENE, HYGIENE, cell(lambda w: pool(w).gpu_table, (7, 3), 2), None, "primary.rows_beyond"),
    (Kind.PLAN, LIVE, shortened, "r1", "plan.kv_len"),
    (Kind.PENDING, LATENT, pending_position, "r1", "position"),
    (Kind.PAGE_TABLE, LIVE, page_beyond_the_pool, "r1", "primary.live_pages[0]"),
    (Kind.SEQUENCE, LIVE, other_text, "r1", "text"),
    # last, when sequences have ended and pages are free
    (Kind.FREE_LIST, LATENT, reversed_free_list, None, "primary.free["),
    (Kind.WRITE_SET, LATENT, write_to_a_free_page, None, "primary.free[0]"),
]


@pytest.fixture(scope="module")
def broken() -> Run:
    from .test_invariants import keep_plans

    changes = [(kind.value, change) for kind, _, change, *_ in FAULTS]
    return generate(FEW, model="tiny-dual", layers=(1,), changes=changes, prepare=keep_plans)


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=[fault[0].value for fault in FAULTS])
def test_a_fault_is_found_by_the_probe_that_is_nearest_to_it(honest: Run, broken: Run, number: int) -> None:
    kind, severity, _, sequence, field = FAULTS[number]
    (step,) = (step for step, name in broken.broken.items() if name == kind.value)
    found = [
        mismatch
        for mismatch in differences(honest, broken)
        if mismatch.step == step and mismatch.point is Point.DECODE and mismatch.kind is not Kind.INVARIANT
    ]
    assert found, "not seen"
    assert found[0].field.startswith(field)
    assert (found[0].kind, found[0].severity) == (kind, severity)
    assert found[0].sequence == sequence


def test_a_host_page_that_is_wrong_at_a_boundary_is_found_with_layer_and_page(honest: Run) -> None:
    def prepare(worker: Any) -> None:
        original = worker._boundary_finalize

        def finalize(uuids: Any) -> Any:
            if worker.counters["boundaries"] == 0:
                host_byte(worker)
            return original(uuids)

        worker._boundary_finalize = finalize

    found = differences(honest, generate(FEW, model="tiny-dual", layers=(1,), prepare=prepare))
    assert (found[0].kind, found[0].sequence, found[0].layer) == (Kind.HOST_KV, "r1", 1)
    assert found[0].field == "host.primary.k.page[0]" and found[0].severity is Severity.LATENT
    assert found[0].point is Point.BOUNDARY


def test_a_state_that_did_not_come_back_is_found_before_what_it_spoils() -> None:
    def prepare(worker: Any) -> None:
        worker.core_engine.state_slot_pool.keeps = None

    sides = (generate(REQUESTS, model="tiny-hybrid", prepare=how) for how in (lambda worker: None, prepare))
    pairs = zip(*(side.events for side in sides), strict=False)  # other tokens, perhaps other points
    found = next(found for found in (compare_events(*pair, SAME).mismatches for pair in pairs) if found)
    assert (found[0].kind, found[0].severity, found[0].layer) == (Kind.STATE, LIVE, 0)
    assert found[0].field.startswith("state.position[")


# plans and sketches by hand


def test_coverage_counts_places_that_are_where_their_page_says() -> None:
    class Plan:
        token_indices = torch.tensor([[8, 9, 10, 11, 20, 21], [4, 5, 6, 6, 6, 6], [40, 40, 40, 40, 40, 40]])
        kv_len = torch.tensor([6, 3, 0])
        mask = torch.arange(6)[None, :] < torch.tensor([6, 3, 1])[:, None]
        write_indices = torch.tensor([21, 6, 40])

    rows = rows_of(Plan, 4)
    assert [row.covered for row in rows] == [6, 3, 1]
    assert rows[0].pages == (2, 5) and (rows[0].page, rows[0].offset) == (5, 1)
    Plan.token_indices[0, 4] = 13  # another page's
    assert rows_of(Plan, 4)[0].covered < 6


def test_a_sketch_is_linear_and_sees_two_positions_change_places() -> None:
    generator = torch.Generator().manual_seed(1)
    cache = torch.randn(2, 6, 4, 3, 8, generator=generator)
    (whole,) = page_sketches(cache, [[3, 1]], [8])
    assert whole.shape == (2, 2, 3, 16)
    assert torch.allclose(sketch(2 * cache[0]), 2 * sketch(cache[0]), rtol=1e-5)
    swapped = cache.clone()
    swapped[0, 3, [0, 1]] = cache[0, 3, [1, 0]]
    (other,) = page_sketches(swapped, [[3, 1]], [8])
    assert (other[0, 0] != whole[0, 0]).any() and torch.equal(other[1], whole[1])
    stale = cache.clone()
    stale[:, 1, 2:] = torch.nan
    assert torch.equal(page_sketches(stale, [[3, 1]], [6])[0], page_sketches(cache, [[3, 1]], [6])[0])
    assert torch.equal(position_vectors(cache, [(3, 2)])[:, 0], cache[:, 3, 2])


def test_the_score_of_sketches_estimates_that_of_the_pages() -> None:
    generator = torch.Generator().manual_seed(2)
    pages = torch.randn(200, 16, 1, 32, generator=generator)
    errors = 1e-3 * torch.randn(200, 16, 1, 32, generator=generator)
    ours, theirs = sketch(pages), sketch(pages + errors)
    ratio = ((theirs - ours).norm(dim=-1) / ours.norm(dim=-1)) / 1e-3
    assert 0.9 < float(ratio.mean()) < 1.1 and float(ratio.std()) < 0.35


def test_vectors_are_scored_by_layer_unit_and_head() -> None:
    ours = np.ones((2, 3, 2, 16), dtype=np.float32)
    theirs = ours.copy()
    theirs[1, 2, 1, 5] = 1.5
    pair = [
        Event(Point.DECODE, 0, {k: Vectors(v, "page", tokens=4) for k in [_key()]}) for v in (ours, theirs)
    ]
    (found,) = compare_events(*pair).mismatches
    assert (found.layer, found.field, found.detail) == (1, "primary.k.page[2].head[1]", "positions 8 to 11")
    assert found.score is not None and found.score.relative_l2 == pytest.approx(0.125)


def test_content_is_sent_as_numbers_only_where_it_is_asked_for() -> None:
    exact, numeric = (generate(FEW[:2], numeric=numeric) for numeric in (False, True))
    assert not any(isinstance(v, Vectors) for event in exact.events for v in event.values.values())
    seen = {key.kind for e in numeric.events for key, v in e.values.items() if isinstance(v, Vectors)}
    assert seen == {Kind.KV, Kind.HOST_KV}
    assert differences(numeric, generate(FEW[:2], numeric=True)) == []


def _key() -> Any:
    from shadow.observation import Key

    return Key(Kind.KV, "a", "primary.k")


def test_free_pages_are_counted_only_where_pages_are_renamed() -> None:
    key = _key()
    ours, theirs = (
        Event(Point.DECODE, 0, {key: Pages("primary", ids, owned=False)}) for ids in ((1, 2, 3), (7, 8, 9))
    )
    assert compare_events(ours, theirs).mismatches
    assert compare_events(ours, theirs, BATCH_ORDER).mismatches == ()
    fewer = Event(Point.DECODE, 0, {key: Pages("primary", (7, 8), owned=False)})
    assert compare_events(ours, fewer, BATCH_ORDER).mismatches
