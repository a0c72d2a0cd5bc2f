"""Honest runs under pressure break no invariant; a state in which one thing is wrong breaks one, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from batchgen.attention import AttnWrapperBase
from batchgen.cuda_graph import Glm5CudaGraphAdapter, StaticBuffers
from shadow.invariants import INVARIANTS
from shadow.observation import Point

from ...batchgen.worker.conftest import random_requests
from .support import Change, Run, generate

CATALOGUE = Path(__file__).parents[3] / "docs" / "invariants.md"
REQUESTS = random_requests(14, seed=12, prompt=(10, 40), new=(10, 30), ignore_eos=True)
Undo = Callable[[], None]


def honest(model: str) -> Run:
    return generate(REQUESTS, model=model)


@pytest.fixture(scope="module")
def single() -> Run:
    return honest("tiny")


@pytest.fixture(scope="module")
def dual() -> Run:
    return honest("tiny-dual")


@pytest.mark.parametrize("model", ["single", "dual"])
def test_a_run_under_pressure_breaks_nothing_and_every_invariant_was_looked_at(
    model: str, request: pytest.FixtureRequest
) -> None:
    run: Run = request.getfixturevalue(model)
    assert run.violated() == {}
    assert all(run.stats.get(name) for name in ("evictions", "holds", "reloads", "host_growths")), run.stats
    names = {invariant.name for invariant in INVARIANTS}
    unseen = {name for name in names if not run.checked[name]}
    assert unseen == ({"mirrored-pools"} if model == "single" else set())


def test_loads_beside_the_forward_break_nothing() -> None:
    run = generate(random_requests(12, seed=1), gpu_kv_pages=30, host_kv_pages=60)
    assert run.stats["async_loads"] and run.violated() == {}


@pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda invariant: invariant.name)
def test_the_catalogue_says_what_it_checks(invariant: Any) -> None:
    assert invariant.__doc__
    assert f"| `{invariant.name}` |" in CATALOGUE.read_text()


# one thing wrong


def pool(worker: Any) -> Any:
    manager = worker.gpu_paged_kv_cache_manager
    return getattr(manager, "primary", manager)


def row_of(worker: Any, row: int) -> Any:
    uuid = worker._global_to_uuid[AttnWrapperBase.cur_batch[row]]
    return worker.global_batch.get_sequence(uuid)


def setting(owner: Any, name: str, change: Callable[[Any], Any]) -> Undo:
    before = getattr(owner, name)
    setattr(owner, name, change(before))
    return lambda: setattr(owner, name, before)


def relisting(pages: list[int], change: Callable[[list[int]], None]) -> Undo:
    before = list(pages)
    change(pages)

    def undo() -> None:
        pages[:] = before

    return undo


def free_list(worker: Any) -> list[int]:
    return pool(worker)._pool.ledger.free_pages


def alias(worker: Any) -> Undo:
    undo: list[Undo] = []
    manager = worker.gpu_paged_kv_cache_manager
    for one in (manager.primary, manager.auxiliary):
        ours, theirs = (one._sequences[AttnWrapperBase.cur_batch[row]] for row in (0, 1))
        stolen, given = theirs[-1], ours[-1]
        undo.append(relisting(ours, lambda pages, page=stolen: pages.__setitem__(-1, page)))
        undo.append(relisting(one._pool.ledger.free_pages, lambda pages, page=given: pages.append(page)))

    def all_of_it() -> None:
        for back in undo:
            back()

    return all_of_it


def mirror(worker: Any) -> Undo | None:
    pages = worker.gpu_paged_kv_cache_manager.auxiliary._sequences[AttnWrapperBase.cur_batch[0]]
    live = -(-int(AttnWrapperBase.cache_seqlens[0]) // 4)
    if len(pages) - live < 2:
        return None  # only pages that nothing reads yet may change places

    def swap(pages: list[int]) -> None:
        pages[-1], pages[-2] = pages[-2], pages[-1]

    return relisting(pages, swap)


def over_the_limit(worker: Any) -> Undo:
    entry = row_of(worker, 1)
    limit, budget = entry.original_max_decode_length, entry.kv_token_budget
    entry.original_max_decode_length = entry.decoded_length - 1
    entry.kv_token_budget = entry.original_prompt_length + entry.decoded_length - 1

    def undo() -> None:
        entry.original_max_decode_length, entry.kv_token_budget = limit, budget

    return undo


def cell(tensor: Callable[[Any], torch.Tensor], place: Any, value: Any) -> Change:
    def change(worker: Any) -> Undo:
        target = tensor(worker)
        before = target[place].clone()
        target[place] = value

        def undo() -> None:
            target[place] = before

        return undo

    return change


def swapped_pages(worker: Any) -> Undo:
    table = pool(worker).gpu_table
    before = table[1, :2].clone()
    table[1, :2] = before.flip(0)

    def undo() -> None:
        table[1, :2] = before

    return undo


def padded_buffers(worker: Any) -> StaticBuffers | None:
    rows = len(AttnWrapperBase.cur_batch or ())
    bucket = worker._cuda_graph_adapter.bucket_for(rows)
    return worker._cuda_graph_manager.buffers(bucket) if bucket > rows else None


def dirty_padding(worker: Any) -> Undo | None:
    buffers = padded_buffers(worker)
    return None if buffers is None else cell(lambda _: buffers.inputs["cache_seqlens"], -1, 3)(worker)


def same_length(worker: Any) -> Undo | None:
    lengths = AttnWrapperBase.cache_seqlens.tolist()
    if lengths[0] != lengths[1]:
        return None
    first, second, *rest = AttnWrapperBase.cur_batch
    return setting(AttnWrapperBase, "cur_batch", lambda _: [second, first, *rest])


def stray_write(worker: Any) -> Undo:
    page = free_list(worker)[0]
    return cell(lambda w: pool(w).k_cache, (1, page, 2), 0.5)(worker)


def plan_of(worker: Any) -> torch.Tensor:
    return PLANS[-1].token_indices


PLANS: list[Any] = []


def keep_plans(worker: Any) -> None:
    backend = worker.core_engine.attention_backend
    original = backend.plan_decode

    def plan(*args: Any, **kwargs: Any) -> Any:
        PLANS.append(original(*args, **kwargs))
        return PLANS[-1]

    backend.plan_decode = plan


FAULTS: list[tuple[str, Change, int | None, str]] = [
    # invariant, how it is broken, the row it names, what the message has
    ("no-alias", alias, None, "is owned by"),
    (
        "pages-exist",
        lambda w: relisting(free_list(w), lambda p: p.append(40)),
        None,
        "page 40; pool primary has 40",
    ),
    ("conservation", lambda w: relisting(free_list(w), lambda p: p.pop()), None, "neither free nor owned"),
    ("double-free", lambda w: relisting(free_list(w), lambda p: p.append(p[0])), None, "more than once"),
    (
        "use-after-free",
        lambda w: relisting(
            free_list(w), lambda p: p.append(pool(w)._sequences[AttnWrapperBase.cur_batch[1]][0])
        ),
        1,
        "are free and owned by",
    ),
    ("mirrored-pools", mirror, 0, "in the other pool"),
    (
        "sequence-metadata",
        lambda w: setting(row_of(w, 1), "kv_token_budget", lambda n: n + 1),
        1,
        "kv_token_budget",
    ),
    ("context-length", over_the_limit, 1, "of at most"),
    (
        "held-pages",
        lambda w: setting(row_of(w, 1), "gpu_pages_allocated", lambda n: n + 1),
        1,
        "gpu_pages_allocated is",
    ),
    (
        "state-slots",
        lambda w: relisting(w.core_engine.state_slot_pool._free, lambda p: p.append(0)),
        None,
        "slot 0 is",
    ),
    ("length-identity", swapped_pages, 1, "row 1 shows"),
    ("trailing-columns", cell(lambda w: pool(w).gpu_table, (1, -1), 7), 1, "page 7 in column 40"),
    ("trailing-columns", cell(lambda w: pool(w).gpu_table, (7, 0), 7), None, "row 7 is nobody's"),
    ("pad-rows", dirty_padding, None, "its cache_seqlens is 3"),
    ("coverage", cell(plan_of, (1, 1), 0), 1, "covers"),
    ("write-set", stray_write, None, "at offset 2"),
    ("poison", cell(lambda w: w.seen_logits, (1, 0), torch.nan), 1, "are NaN"),
    ("row-order", same_length, None, "has rows"),
]


@pytest.fixture(scope="module")
def broken() -> Run:
    """One run in which one thing after the other is wrong for one event."""
    requests = random_requests(12, seed=5, prompt=(13, 13), new=(24, 30), ignore_eos=True)
    changes = [(f"{index} {name}", change) for index, (name, change, _, _) in enumerate(FAULTS)]
    return generate(
        requests, model="tiny-dual", changes=changes, prepare=keep_plans, gpu_kv_pages=40, host_kv_pages=80
    )


@pytest.mark.parametrize(
    "number", range(len(FAULTS)), ids=[f"{fault[0]}-{n}" for n, fault in enumerate(FAULTS)]
)
def test_one_thing_wrong_breaks_one_invariant(broken: Run, number: int) -> None:
    name, _, row, text = FAULTS[number]
    steps = [step for step, change in broken.broken.items() if change == f"{number} {name}"]
    assert len(steps) == 1, f"the change was not made: {broken.broken}"
    found = broken.violated(steps[0])
    assert set(found) == {name}, found
    sequence, message = found[name][0]
    assert text in message
    event = next(e for e in broken.events if e.step == steps[0] and e.point is Point.DECODE)
    if row is not None:
        rows = next(v for k, v in event.values.items() if (k.kind, k.field) == ("page_table", "rows"))
        assert sequence == rows.labels[row]


def test_what_was_mended_is_whole_again(broken: Run) -> None:
    steps = set(broken.broken)
    assert len(steps) == len(FAULTS)
    assert [e.violations for e in broken.events if e.step not in steps and e.violations] == []


# what one event cannot show


def test_a_buffer_that_was_replaced_after_its_capture_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fresh_tensor_each_step(worker: Any) -> None:
        original = Glm5CudaGraphAdapter.prepare_replay_inputs

        def prepare(adapter: Any, state: Any, bucket: int) -> Any:
            buffers = worker._cuda_graph_manager.buffers(bucket)
            buffers.audit = lambda: None  # the manager's own check would end the run
            if worker.counters["decode_steps"] >= 3:
                buffers.inputs["rank_token_counts"] = buffers.inputs["rank_token_counts"].clone()
            return original(adapter, state, bucket)

        monkeypatch.setattr(Glm5CudaGraphAdapter, "prepare_replay_inputs", prepare)

    run = generate(random_requests(2, seed=2, new=(8, 8)), prepare=fresh_tensor_each_step)
    found = run.violated()
    assert set(found) == {"captured-pointers"}
    assert found["captured-pointers"][0][1].startswith("rank_token_counts of bucket")
    assert min(event.step for event in run.events if event.violations) == 3


def test_a_binding_that_a_phase_leaves_behind_is_named() -> None:
    def forgetful(worker: Any) -> None:
        original = worker._unbind_attn_wrapper

        def unbind() -> None:
            kept = AttnWrapperBase.decode_page_table, AttnWrapperBase.cache_seqlens
            original()
            AttnWrapperBase.decode_page_table, AttnWrapperBase.cache_seqlens = kept

        worker._unbind_attn_wrapper = unbind

    found = generate(random_requests(2, seed=2, new=(4, 6)), prepare=forgetful).violated()
    AttnWrapperBase.reset()
    assert set(found) == {"decode-cleanup"}
    assert found["decode-cleanup"][0][1] == "cache_seqlens is still bound after the decode phase, to a Tensor"


def test_a_request_slot_that_is_not_given_back_is_named_at_the_end() -> None:
    def forgetful(worker: Any) -> None:
        worker._release_pool_slot = lambda seq: None

    found = generate(random_requests(2, seed=2, new=(4, 6)), prepare=forgetful).violated()
    assert found == {"leftovers": [(None, "2 request pool slots are left when the batch is over")]}


def test_host_pages_of_a_sequence_that_is_over_are_named_with_it() -> None:
    def forgetful(worker: Any) -> None:
        original = worker._release_host_kv_pages

        def release(uuids: Any) -> None:
            original([u for u in uuids if worker.global_batch.get_sequence(u).custom_id != "r1"])

        worker._release_host_kv_pages = release

    run = generate(random_requests(2, seed=2, new=(4, 20)), prepare=forgetful)
    found = run.violated()
    assert {sequence for sequence, _ in found["leftovers"]} == {"r1"}


def test_a_state_that_is_kept_for_a_sequence_that_is_over_is_found() -> None:
    def prepare(worker: Any) -> None:
        worker.core_engine.host_paged_kv_worker_view.on_release = None

    requests = random_requests(4, seed=5, prompt=(13, 13), new=(3, 12), ignore_eos=True)
    run = generate(requests, model="tiny-hybrid", prepare=prepare)
    found = run.violated()
    assert set(found) == {"leftovers"}
    assert {sequence for sequence, _ in found["leftovers"]} == {f"r{n}" for n in range(4)}
    assert all("of the kept states, and it is COMPLETED" in message for _, message in found["leftovers"])


def test_freed_pages_are_not_a_number_and_pools_are_made_so() -> None:
    seen: list[bool] = []

    def look(worker: Any) -> None:
        original = worker._release_gpu_kv_pages

        def release(local_ids: Any) -> None:
            held = [worker._local_to_global_id(index) for index in local_ids]
            pages = [page for index in held for page in pool(worker)._sequences[index]]
            original(local_ids)
            seen.append(bool(torch.isnan(pool(worker).k_cache[:, pages]).all()))
            assert not torch.isnan(pool(worker).k_cache[:, -1]).any(), "padded rows read the scratch page"

        worker._release_gpu_kv_pages = release

    run = generate(random_requests(12, seed=1), prepare=look, gpu_kv_pages=30, host_kv_pages=60)
    assert seen and all(seen) and run.violated() == {}


def test_state_that_cannot_be_read_is_a_finding_and_no_failure() -> None:
    def nonsense(worker: Any) -> Undo:
        return setting(row_of(worker, 1), "decoded_length", lambda _: "seven")

    run = generate(random_requests(4, seed=2, new=(6, 8)), changes=[("nonsense", nonsense)])
    (step,) = run.broken
    messages = [message for _, message in run.violated(step)["readable"]]
    assert any("context-length cannot be read: TypeError" in message for message in messages)
