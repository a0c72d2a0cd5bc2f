"""State on a class or a long-lived object: bound too late, not unbound, kept from another time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shadow.mutants.patch import around, module
from shadow.mutants.registry import Fault, Plant, Where, mutant
from shadow.observation import Kind


def _wrapper(plant: Plant) -> Any:
    return module(plant, "attention").AttnWrapperBase


@mutant("attention-not-unbound", Fault.STRUCTURAL, Where(Kind.INVARIANT, "*", step=20))
@contextmanager
def attention_not_unbound(plant: Plant) -> Iterator[None]:
    """B-07: class-level bindings are not taken back when decoding ends."""

    def unbind(original: Any) -> None:
        if plant.step() == 20:
            plant.fired()
        else:
            original()

    with around(plant.worker, "_unbind_attn_wrapper", unbind):
        yield


@mutant("append-callback-of-the-step-before", Fault.STRUCTURAL, Where(Kind.PENDING, "*", step=13))
@contextmanager
def append_callback_of_the_step_before(plant: Plant) -> Iterator[None]:
    """B-02: the callback that collects KV for the host is the one of the step before, with its positions."""

    def begin(original: Any, sequences: Sequence[Any]) -> None:
        before = plant.worker._deferred_kv_batch, _wrapper(plant).kv_append_callback
        original(sequences)
        rows, positions = plant.worker._deferred_kv_batch
        if plant.step() == 13 and before[1] is not None:
            plant.worker._deferred_kv_batch = (rows, [position - 1 for position in positions])
            plant.fired()

    with around(plant.worker, "_decode_begin_deferred_kv", begin):
        yield


@mutant("model-flag-lost", Fault.STRUCTURAL, Where(Kind.BINDING, "max_seqlen", step=13))
@contextmanager
def model_flag_lost(plant: Plant) -> Iterator[None]:
    """B-43: the longest length is read with getattr(x, name, None) under a name that is no more."""

    def bind(original: Any, sequences: Sequence[Any]) -> int:
        longest = int(original(sequences))
        if plant.step() == 13:
            _wrapper(plant).max_seqlen = None
            plant.fired()
        return longest

    with around(plant.worker, "_bind_decode_attention_metadata", bind):
        yield


@mutant(
    "engine-keeps-the-old-pool",
    Fault.STRUCTURAL,
    Where(Kind.BINDING, "gpu_paged_kv_manager_primary", step=12),
    workload="twice",
)
@contextmanager
def engine_keeps_the_old_pool(plant: Plant) -> Iterator[None]:
    """B-02: a handle stored the pool when it was made; the pool has been replaced by a larger one since."""
    first: list[Any] = []

    def bind(original: Any, batch: Any) -> None:
        original(batch)
        manager = plant.worker.gpu_paged_kv_cache_manager
        if not first:
            first.append(manager)
        elif manager is not first[0]:
            _wrapper(plant).gpu_paged_kv_manager_primary = first[0]
            plant.fired()

    with around(plant.worker, "_decode_bind_attn_wrapper", bind):
        yield


@mutant("phase-left-at-prefill", Fault.STRUCTURAL, Where(Kind.BINDING, "phase", step=20))
@contextmanager
def phase_left_at_prefill(plant: Plant) -> Iterator[None]:
    """B-07: the attention class is still in the prefill phase when decoding begins."""

    def phase(original: Any, name: str) -> None:
        original(name)
        if name == "decode" and plant.step() == 20:
            _wrapper(plant).phase = "prefill"
            plant.fired()

    with around(plant.worker, "set_phase", phase):
        yield


@mutant(
    "numbering-goes-on-over-batches",
    Fault.STRUCTURAL,
    Where(Kind.SEQUENCE, "global_idx", step=12),
    workload="twice",
)
@contextmanager
def numbering_goes_on_over_batches(plant: Plant) -> Iterator[None]:
    """B-35: state of the last batch is left in a live worker: numbers of sequences go on where they ended."""

    def reset(original: Any) -> None:
        before = plant.worker._next_global_idx
        original()
        if before:
            plant.worker._next_global_idx = before
            plant.fired()

    with around(plant.worker, "_reset_for_new_batch", reset):
        yield


@mutant("state-slots-leak", Fault.STRUCTURAL, Where(Kind.INVARIANT, "*", step=8, sequence="c"))
@contextmanager
def state_slots_leak(plant: Plant) -> Iterator[None]:
    """B-42: the recurrent-state slot of a finished sequence is not given back with its pages."""

    def release(original: Any, ids: Sequence[int]) -> None:
        if plant.step() == 8:
            plant.fired()
        else:
            original(ids)

    with around(plant.worker, "_release_kda_state_slots", release):
        yield


@mutant(
    "state-slot-given-to-two", Fault.STRUCTURAL, Where(Kind.INVARIANT, "state-slots", step=0, sequence="a")
)
@contextmanager
def state_slot_given_to_two(plant: Plant) -> Iterator[None]:
    """sglang#18694 (state slots): two sequences that start together share the slot of their recurrent state."""

    def allocate(original: Any, pool: Any, ids: Sequence[int]) -> Any:
        slots = original(pool, ids)
        if plant.step() == 0 and len(ids) > 1:
            pool._slots[ids[1]] = slots[1] = slots[0]
            plant.fired()
        return slots

    with around(module(plant, "kv").StateSlotPool, "allocate", allocate):
        yield


@mutant("pool-slot-leaks", Fault.STRUCTURAL, Where(Kind.SEQUENCE, "pool_slot_index", step=8, sequence="c"))
@contextmanager
def pool_slot_leaks(plant: Plant) -> Iterator[None]:
    """vllm-ascend#16662 (request slots): a finished request keeps its slot: nobody is admitted in its place."""

    def release(original: Any, entry: Any) -> None:
        if plant.step() == 8:
            plant.fired()
        else:
            original(entry)

    with around(plant.worker, "_release_pool_slot", release):
        yield


@mutant("copies-never-waited-for", Fault.STRUCTURAL, Where(Kind.EFFECTS, "calls*", step=8))
@contextmanager
def copies_never_waited_for(plant: Plant) -> Iterator[None]:
    """B-32, B-33: the boundary does not wait for the host appends under way."""

    def wait(original: Any, **more: Any) -> int:
        if plant.step() == 8:
            plant.worker._pending_kv_append_tasks = []
            plant.fired()
        return int(original(**more))

    with around(plant.worker, "_wait_pending_kv_append_tasks", wait):
        yield


@mutant("pool-outlives-the-batch", Fault.STRUCTURAL, Where(Kind.INVARIANT, "*", step=40))
@contextmanager
def pool_outlives_the_batch(plant: Plant) -> Iterator[None]:
    """B-36, B-38: the GPU pool is not dropped at the end; whoever asks `is None` thinks it usable."""

    def destroy(original: Any, **more: Any) -> None:
        if plant.step() == 40:
            plant.fired()
        else:
            original(**more)

    with around(plant.worker, "_destroy_gpu_paged_kv_cache", destroy):
        yield


@mutant("more-threads", Fault.CONTROL, Where(None), pairing="threads")
@contextmanager
def more_threads(plant: Plant) -> Iterator[None]:
    """Control: the same worker with another number of threads."""
    torch = __import__("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    plant.fired()
    try:
        yield
    finally:
        torch.set_num_threads(before)


@mutant(
    "requests-in-another-order",
    Fault.CONTROL,
    Where(None),
    pairing="batch-order",
    row_exact=True,
    max_pool_size=64,
    gpu_kv_pages=80,
    host_kv_pages=160,
    max_batch_size=9,
)
@contextmanager
def requests_in_another_order(plant: Plant) -> Iterator[None]:
    """Control: the same requests come in the reverse order; rows are computed one by one."""

    def submit(original: Any, requests: Sequence[Any]) -> Any:
        plant.fired()
        return original(list(requests)[::-1])

    with around(plant.worker, "_submit_requests", submit):
        yield
