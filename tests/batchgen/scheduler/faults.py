"""Bugs of a decode step, each planted by a context manager: what a test run under one of them must not let pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from batchgen.scheduler import launching, parking, requeue, spilling, step, swap_in
from batchgen.scheduler.drain import send_error
from batchgen.scheduler.errors import KV_EXHAUSTED, LaunchError
from batchgen.scheduler.ports import Decode, SchedCtx, SpillIo
from batchgen.scheduler.sequences import ActiveSeq, PreemptedSeq, SwappedSeq
from batchgen.scheduler.snapshots import RowSlots, VictimRow
from batchgen.scheduler.trace import StepTrace
from batchgen.scheduler.victims import Park, Route


def choosing(rule: Callable[[Sequence[VictimRow]], int | None]) -> AbstractContextManager[Any]:
    def choose(rows: Sequence[VictimRow], can_spill: bool) -> Park | None:
        index = rule(rows)
        return None if index is None else Park(index, Route.SPILL if can_spill else Route.REQUEUE)

    return patch.object(launching, "choose_decode_victim", choose)


def mature(rows: Sequence[VictimRow]) -> list[int]:
    found = [i for i, row in enumerate(rows) if row.outputs >= row.immune_until]
    return found or list(range(len(rows)))


def swap_remove() -> AbstractContextManager[Any]:
    """The last row takes the place of the one that was parked."""
    park = parking.park

    def faulty(sched: SchedCtx, plan: Park, active: list[ActiveSeq], *rest: Any) -> None:
        park(sched, plan, active, *rest)
        if plan.index < len(active):
            active.insert(plan.index, active.pop())

    return patch.object(launching, "park", faulty)


def rows_not_sorted() -> AbstractContextManager[Any]:
    return patch.object(step, "sort_rows", lambda sched, active: None)


def sorted_by_kv_slot_only() -> AbstractContextManager[Any]:
    def faulty(rows: Sequence[RowSlots]) -> tuple[int, ...]:
        return tuple(sorted(range(len(rows)), key=lambda i: rows[i].slot_idx))

    return patch.object(step, "order_rows", faulty)


def sort_is_not_stable() -> AbstractContextManager[Any]:
    def faulty(rows: Sequence[RowSlots]) -> tuple[int, ...]:
        keys = [row.slot_idx if row.ssm_slot is None else row.ssm_slot for row in rows]
        return tuple(sorted(range(len(rows)), key=lambda i: (keys[i], -i)))

    return patch.object(step, "order_rows", faulty)


@contextmanager
def sorted_after_the_tokens_were_read() -> Iterator[None]:
    read: list[int] = []
    sort, command_of = step.sort_rows, launching.command_of

    def sort_rows(sched: SchedCtx, active: list[ActiveSeq]) -> None:
        read[:] = [row.last_token for row in active]
        sort(sched, active)

    def command(sched: SchedCtx, active: list[ActiveSeq]) -> Decode:
        right = command_of(sched, active)
        return dataclasses.replace(right, tokens=tuple(read)) if len(read) == len(active) else right

    with patch.object(step, "sort_rows", sort_rows), patch.object(launching, "command_of", command):
        yield


def _stale(field: str) -> AbstractContextManager[Any]:
    command_of = launching.command_of
    kept: dict[int, Decode] = {}

    def faulty(sched: SchedCtx, active: list[ActiveSeq]) -> Decode:
        first = kept.setdefault(id(sched) + sched.steps, command_of(sched, active))
        stale = first.tokens[: len(active)] if field == "tokens" else first.readback
        return dataclasses.replace(command_of(sched, active), **{field: stale})

    return patch.object(launching, "command_of", faulty)


def tokens_not_rebuilt_on_retry() -> AbstractContextManager[Any]:
    return _stale("tokens")


def readback_not_rebuilt_on_retry() -> AbstractContextManager[Any]:
    return _stale("readback")


def victim_by_most_blocks() -> AbstractContextManager[Any]:
    return choosing(lambda rows: max(mature(rows), key=lambda i: rows[i].blocks))


def tie_to_the_higher_slot() -> AbstractContextManager[Any]:
    return choosing(lambda rows: min(mature(rows), key=lambda i: (rows[i].outputs, -rows[i].slot_idx)))


def immunity_ignored() -> AbstractContextManager[Any]:
    return choosing(lambda rows: min(range(len(rows)), key=lambda i: (rows[i].outputs, rows[i].slot_idx)))


def immunity_of_all_fails_the_batch() -> AbstractContextManager[Any]:
    def rule(rows: Sequence[VictimRow]) -> int | None:
        found = [i for i, row in enumerate(rows) if row.outputs >= row.immune_until]
        return min(found, key=lambda i: (rows[i].outputs, rows[i].slot_idx), default=None)

    return choosing(rule)


@contextmanager
def immunity_is_absolute() -> Iterator[None]:
    """64 tokens from the first one on, not from the resume."""

    def faulty(sched: SchedCtx, a: ActiveSeq, active: list[ActiveSeq]) -> None:
        a.immune_until = sched.limits.preempt_immunity
        active.append(a)

    with patch.object(requeue, "make_active", faulty), patch.object(swap_in, "make_active", faulty):
        yield


def error_frame_to_the_victim() -> AbstractContextManager[Any]:
    park = parking.park

    def faulty(sched: SchedCtx, plan: Park, active: list[ActiveSeq], *rest: Any) -> None:
        victim = active[plan.index]
        park(sched, plan, active, *rest)
        send_error(victim, "preempted")

    return patch.object(launching, "park", faulty)


def last_token_is_prefilled() -> AbstractContextManager[Any]:
    history = requeue.history_of
    return patch.object(requeue, "history_of", lambda sched, a: [*history(sched, a), a.last_token])


def history_from_the_outputs() -> AbstractContextManager[Any]:
    """The tokens that were dropped are missing."""
    return patch.object(
        requeue, "history_of", lambda sched, a: a.seq.tokens[: a.prompt_tokens] + a.output_tokens[:-1]
    )


def prefill_logits_are_sampled() -> AbstractContextManager[Any]:
    resume = requeue.resume_preempted_seq

    def faulty(sched: SchedCtx, parked: PreemptedSeq, active: list[ActiveSeq]) -> None:
        device, tokens = sched.io.device, list(parked.tokens)
        resume(sched, parked, active)
        if parked.a in active:
            device.release(parked.a.seq, cache=False)
            parked.a.seq = device.alloc_sequence()
            logits = np.frombuffer(device.prefill(tokens, parked.a.seq) or b"", np.float32)
            parked.a.last_token = int(logits.argmax())
            parked.a.output_tokens.append(parked.a.last_token)

    return patch.object(requeue, "resume_preempted_seq", faulty)


def requeue_without_the_prefix_cache() -> AbstractContextManager[Any]:
    release = requeue.release_seq
    return patch.object(requeue, "release_seq", lambda sched, seq, cache: release(sched, seq, cache=False))


def _returning(buffer: Callable[[bytearray], bytearray]) -> AbstractContextManager[Any]:
    process = step.process_decode_logits

    def faulty(*arguments: Any) -> None:
        process(*arguments)
        staging, sched = arguments[3], arguments[11]
        sched.scratch.host_bytes = buffer(staging)

    return patch.object(step, "process_decode_logits", faulty)


def buffer_is_not_put_back() -> AbstractContextManager[Any]:
    return _returning(lambda staging: bytearray())


def buffer_is_copied() -> AbstractContextManager[Any]:
    return _returning(bytearray)


@contextmanager
def preempts_on_a_readback_error() -> Iterator[None]:
    class Never(Exception):
        pass

    with (
        patch.object(launching, "ReadbackError", Never),
        patch.object(launching, "EffectError", Never),
        patch.object(launching, "ForwardError", LaunchError),
        patch.object(launching, "is_kv_exhausted", lambda error: KV_EXHAUSTED in str(error)),
    ):
        yield


def retries_with_one_row() -> AbstractContextManager[Any]:
    choose = launching.choose_decode_victim

    def faulty(sched: SchedCtx, active: list[ActiveSeq], can_spill: bool) -> Park | None:
        return choose(launching.victim_rows(active), can_spill)

    return patch.object(launching, "victim_of", faulty)


def failed_spill_drops_the_request() -> AbstractContextManager[Any]:
    park = parking.park

    def faulty(
        sched: SchedCtx,
        plan: Park,
        active: list[ActiveSeq],
        spill: SpillIo | None,
        swapped: list[SwappedSeq],
        preempted: list[PreemptedSeq],
        trace: StepTrace | None,
    ) -> None:
        count = len(preempted)
        park(sched, plan, active, spill, swapped, preempted, trace)
        if spill is not None:
            del preempted[count:]

    return patch.object(launching, "park", faulty)


def spill_file_is_left_after_a_resume() -> AbstractContextManager[Any]:
    swap = swap_in.swap_in_sequence

    def faulty(sched: SchedCtx, spill: SpillIo, parked: SwappedSeq, active: list[ActiveSeq]) -> bool:
        with patch.object(spill, "remove"):
            return swap(sched, spill, parked, active)

    return patch.object(swap_in, "swap_in_sequence", faulty)


def entry_is_left_when_the_save_fails() -> AbstractContextManager[Any]:
    return patch.object(spilling, "remove_entry", lambda spill, swap_id: None)


def spilled_blocks_are_not_freed() -> AbstractContextManager[Any]:
    return patch.object(spilling, "release_seq", lambda sched, seq, cache: None)


def spill_restores_no_history() -> AbstractContextManager[Any]:
    swap = swap_in.swap_in_sequence

    def faulty(sched: SchedCtx, spill: SpillIo, parked: SwappedSeq, active: list[ActiveSeq]) -> bool:
        done = swap(sched, spill, parked, active)
        if done:
            parked.a.seq.tokens = parked.a.seq.tokens[:-1]
        return done

    return patch.object(swap_in, "swap_in_sequence", faulty)
