"""Recurrent states: another one than the sequence's, one that did not come along, one that moved when it should not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shadow.mutants.patch import around, index, module
from shadow.mutants.registry import Fault, Plant, Where, mutant
from shadow.observation import Kind

_HYBRID = "tiny-hybrid"


def _pool(plant: Plant) -> Any:
    return plant.worker.core_engine.state_slot_pool


@mutant(
    "held-state-not-loaded",
    Fault.NUMERIC,
    Where(Kind.STATE, "state.position*", step=20, sequence="e", layer=0),
    model=_HYBRID,
)
@contextmanager
def held_state_not_loaded(plant: Plant) -> Iterator[None]:
    """LMCache#2879: of a sequence that was parked the KV is loaded again, the recurrent state is not."""

    parked: list[bool] = []

    def allocate(original: Any, pool: Any, ids: Sequence[int]) -> Any:
        number = index(plant, "e")
        parked.extend(number == i and number in pool._kept for i in ids)
        return original(pool, ids)

    def begin(original: Any, sequences: Sequence[Any], *rest: Any) -> Any:
        if any(parked) and any(entry.custom_id == "e" for entry in sequences):
            parked.clear()
            _pool(plant).states[_pool(plant)._slots[index(plant, "e")]] = 0
            plant.fired()
        return original(sequences, *rest)

    with (
        around(module(plant, "kv").StateSlotPool, "allocate", allocate),
        around(plant.worker, "_decode_make_batch_state", begin),
    ):
        yield


@mutant(
    "re-prefill-from-the-former-state",
    Fault.NUMERIC,
    Where(Kind.STATE, "state.position*", step=20, sequence="a", layer=0),
    model=_HYBRID,
)
@contextmanager
def re_prefill_from_the_former_state(plant: Plant) -> Iterator[None]:
    """vllm-metal#488: an evicted request is prefilled anew and goes on from the state that it had before."""
    former: list[Any] = []

    def release(original: Any, pool: Any, ids: Sequence[int]) -> None:
        if plant.step() == 4 and index(plant, "a") in ids:
            former.append(pool.states[pool._slots[index(plant, "a")]].clone())
        original(pool, ids)

    def leave(original: Any, states: Any, layer: int, part: Any, values: Any) -> None:
        batch = list(module(plant, "attention").AttnWrapperBase.cur_batch or ())
        if former and part == 0 and index(plant, "a") in batch:
            values = values.clone()
            values[batch.index(index(plant, "a"))] += former[0][layer, 0]
            plant.fired()
        original(states, layer, part, values)

    with (
        around(module(plant, "kv").StateSlotPool, "release", release),
        around(module(plant, "models.states").RecurrentStates, "leave", leave),
    ):
        yield


@mutant(
    "states-of-a-packed-prefill-exchanged",
    Fault.NUMERIC,
    Where(Kind.STATE, "state.position*", step=0, sequence="a", layer=0),
    model=_HYBRID,
)
@contextmanager
def states_of_a_packed_prefill_exchanged(plant: Plant) -> Iterator[None]:
    """sglang#33450, vllm#26807: of several prompts in one forward, the final state of another one is saved."""

    def leave(original: Any, states: Any, layer: int, part: Any, values: Any) -> None:
        if plant.step() == 0 and len(values) > 1:
            values = values.roll(1, 0)
            plant.fired()
        original(states, layer, part, values)

    with around(module(plant, "models.states").RecurrentStates, "leave", leave):
        yield


@mutant(
    "state-slots-of-a-stale-row-order",
    Fault.STRUCTURAL,
    Where(Kind.BINDING, "state_slots*", step=9, sequence="b"),
    model=_HYBRID,
)
@contextmanager
def state_slots_of_a_stale_row_order(plant: Plant) -> Iterator[None]:
    """wtdcode/vllm-backport#63: states are looked up by rows as they were, and are those of other requests."""

    def slots_for(original: Any, pool: Any, ids: Sequence[int]) -> Any:
        slots = original(pool, ids)
        if plant.step() == 9 and len(ids) > 1:
            plant.fired()
            return slots.roll(1)
        return slots

    with around(module(plant, "kv").StateSlotPool, "slots_for", slots_for):
        yield


@mutant(
    "padding-advances-a-state",
    Fault.STRUCTURAL,
    Where(Kind.INVARIANT, "pad-rows", step=9),
    model=_HYBRID,
)
@contextmanager
def padding_advances_a_state(plant: Plant) -> Iterator[None]:
    """TensorRT-LLM#13151: padded rows of a replay keep state slots of a larger batch, whose states go on."""

    def clean(original: Any, buffers: Any, live_rows: int) -> None:
        original(buffers, live_rows)
        if plant.step() == 9 and 0 < live_rows < buffers.rows:
            buffers.inputs["state_slots"][live_rows] = buffers.inputs["state_slots"][0]
            plant.fired()

    with around(module(plant, "cuda_graph.buffers").StaticBuffers, "clean_padding", clean):
        yield


@mutant(
    "states-rounded-to-16-bits",
    Fault.NUMERIC,
    Where(Kind.STATE, "state.position*", step=13, layer=0),
    model=_HYBRID,
)
@contextmanager
def states_rounded_to_16_bits(plant: Plant) -> Iterator[None]:
    """vllm#13466: states are kept in the dtype of the activations."""

    def begin(original: Any, *args: Any) -> Any:
        if plant.step() == 13:
            states = _pool(plant).states
            states.copy_(states.bfloat16())
            plant.fired()
        return original(*args)

    with around(plant.worker, "_decode_make_batch_state", begin):
        yield
