"""The tick of the step policy: admit, prefill, decode, end what has ended, bring back what was parked."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from batchgen.scheduler.drain import fail_row, release_seq, send_error
from batchgen.scheduler.engine.admission import Newcomer, Room, blocks_of, plan_admission, plan_swap_out
from batchgen.scheduler.errors import KvExhausted, LaunchError, SpillError
from batchgen.scheduler.planned import ask
from batchgen.scheduler.ports import Device, SchedCtx, SpillIo
from batchgen.scheduler.requeue import resume_preempted_seqs
from batchgen.scheduler.sequences import (
    ActiveSeq,
    PreemptedSeq,
    RowEvent,
    SequenceState,
    SwappedSeq,
    TokenIds,
)
from batchgen.scheduler.snapshots import victim_rows
from batchgen.scheduler.spilling import remove_entry, spill_out_sequence
from batchgen.scheduler.step import step_decode_only
from batchgen.scheduler.swap_in import swap_in
from batchgen.scheduler.sweep import sweep_parked
from batchgen.scheduler.tokens.budget import at_context_end
from batchgen.scheduler.tokens.decoded import process_decoded_token
from batchgen.scheduler.tokens.finish import finish_reason
from batchgen.scheduler.tokens.sample import sample_row

log = logging.getLogger(__name__)


class BatchDevice(Device, Protocol):
    """A device that takes several prompts at once, and says what its prefix cache holds."""

    @property
    def cached_blocks(self) -> int: ...

    def prefill_all(self, prompts: Sequence[Sequence[int]], seqs: Sequence[SequenceState]) -> list[bytes]: ...


@dataclass(eq=False)
class Arrival:
    """A request that has not started."""

    a: ActiveSeq
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Knobs:
    """`prefill_tokens`: what one tick prefills at most, unless a single prompt is longer. `patience`: ticks that the
    first request of the queue waits before rows are spilled for it: done at once, it costs more than it wins."""

    prefill_tokens: int = 2048
    adaptive_sampling: bool = False
    patience: int = 64


class StepLoop:
    """All requests of a run, from their arrival to their end, on one device.

    Every row ends with exactly one "done" or "error" event to its receiver. `inbox` may be filled from other threads,
    all else belongs to the one that ticks.
    """

    def __init__(
        self,
        device: BatchDevice,
        sched: SchedCtx,
        ids: TokenIds,
        knobs: Knobs,
        spill: SpillIo | None = None,
    ) -> None:
        self.device, self.sched, self.ids, self.knobs, self.spill = device, sched, ids, knobs, spill
        self.inbox: deque[Arrival] = deque()
        self.waiting: deque[Arrival] = deque()
        self.active: list[ActiveSeq] = []
        self.swapped: list[SwappedSeq] = []
        self.preempted: list[PreemptedSeq] = []
        self._waited = 0

    @property
    def parked(self) -> int:
        return len(self.swapped) + len(self.preempted)

    @property
    def is_idle(self) -> bool:
        return not (self.inbox or self.waiting or self.active or self.parked)

    def tick(self) -> None:
        """One round; at most one prefill forward for newcomers and one decode step."""
        while self.inbox:
            self.waiting.append(self.inbox.popleft())
        self._start(self._admitted())
        step_decode_only(
            self.active,
            self.ids.think_end,
            self.ids.think_start,
            self.ids.code_fence,
            self.ids.tool_call_start,
            self.ids.tool_call_end,
            self.knobs.adaptive_sampling,
            self.sched,
            self.spill,
            self.swapped,
            self.preempted,
        )
        self._sweep()
        self._retire()
        if self.spill is not None:
            swap_in(self.sched, self.spill, self.swapped, self.active)
        resume_preempted_seqs(self.sched, self.preempted, self.active)

    # newcomers

    def _admitted(self) -> list[Arrival]:
        if not self.waiting:
            return []
        count = self._plan(len(self.waiting))
        self._waited = 0 if count else self._waited + 1
        if self._waited > self.knobs.patience:
            self._waited = 0
            if self._made_room(self.waiting[0]):
                # Only this one: those behind it would take the room of the rows that were just parked.
                newcomers = (self._newcomer(self.waiting[0]),)
                count = ask(self.sched, plan_admission, self._room(), len(self.active), 0, newcomers)
        return [self.waiting.popleft() for _ in range(count)]

    def _plan(self, first: int) -> int:
        rows = self.sched.limits.max_batch - len(self.active)
        waiting = tuple(self._newcomer(arrival) for arrival in list(self.waiting)[: min(first, rows)])
        return ask(self.sched, plan_admission, self._room(), len(self.active), self.parked, waiting)

    def _room(self) -> Room:
        device, rows = self.device, self.sched.limits.max_batch - len(self.active)
        blocks = device.free_blocks + device.cached_blocks
        return Room(blocks, rows, self.knobs.prefill_tokens, device.block_size)

    def _newcomer(self, arrival: Arrival) -> Newcomer:
        tokens = len(arrival.tokens)
        return Newcomer(tokens, blocks_of(tokens, self.device.block_size))

    def _made_room(self, arrival: Arrival) -> bool:
        """Spills rows for a newcomer, with nothing parked yet. A spill that fails ends it; the row stays active."""
        if self.spill is None or self.parked:
            return False
        plan = ask(self.sched, plan_swap_out, self._room(), victim_rows(self.active), self._newcomer(arrival))
        for row in [self.active[index] for index in plan]:
            try:
                self.swapped.append(spill_out_sequence(self.sched, row, self.spill))
            except SpillError as error:
                log.warning("%s; no room is made for %s", error, arrival.a.request_id)
                return False
            self.active.remove(row)
            self.sched.io.telemetry.count("swapped_out")
            log.info("%s is spilled, so that %s can start", row.request_id, arrival.a.request_id)
        return bool(plan)

    def _start(self, arrivals: Sequence[Arrival]) -> None:
        """Prefills the newcomers, and chooses their first tokens."""
        if not arrivals:
            return
        rows, device = [arrival.a for arrival in arrivals], self.device
        try:
            for row in rows:
                row.seq = device.alloc_sequence()
            logits = device.prefill_all([arrival.tokens for arrival in arrivals], [row.seq for row in rows])
        except LaunchError as error:
            self._failed_start(arrivals, error)
            return
        self.sched.io.telemetry.count("prefill_tokens", sum(len(arrival.tokens) for arrival in arrivals))
        now = self.sched.io.clock.now()
        for row, last in zip(rows, logits, strict=True):
            values = np.frombuffer(bytearray(last), dtype=np.float32)
            choice = sample_row(values, row, self.ids, self.knobs.adaptive_sampling, self.sched)
            if choice.error is None:
                process_decoded_token(row, choice.token, choice.logprob, now, self.ids, self.sched)
            else:
                row.error, row.finished = choice.error, True
            self.active.append(row)
        self._retire()

    def _failed_start(self, arrivals: Sequence[Arrival], error: LaunchError) -> None:
        """Out of blocks after all: they wait again. Anything else is their end."""
        for arrival in reversed(arrivals):
            if arrival.a.seq.slot_idx >= 0:
                release_seq(self.sched, arrival.a.seq, cache=False)
                arrival.a.seq = SequenceState(-1)
            if isinstance(error, KvExhausted):
                self.waiting.appendleft(arrival)
            else:
                send_error(arrival.a, f"prefill failed: {error}")

    # ends

    def _sweep(self) -> None:
        """Ends what was cancelled or is past its deadline, wherever it is; under quirk f only what is active. And rows
        without room for another token: a step does not see that where it drops the token."""
        now, limits = self.sched.io.clock.now(), self.sched.limits
        for row in self.active:
            row.finished |= _is_over(row, now) or at_context_end(row, limits)
        sweep_parked(self.sched, self.spill, self.swapped, self.preempted)
        if self.sched.quirks.parked_cannot_end:
            return
        for arrival in [waiting for waiting in self.waiting if _is_over(waiting.a, now)]:
            self.waiting.remove(arrival)
            self._tell_end(arrival.a)

    def _retire(self) -> None:
        for row in [row for row in self.active if row.finished]:
            self.active.remove(row)
            if row.error is not None:
                fail_row(self.sched, row, row.error)
                continue
            release_seq(self.sched, row.seq, cache=True)
            self._tell_end(row)

    def _tell_end(self, row: ActiveSeq) -> None:
        row.finished = True
        row.receiver.send(RowEvent("done", finish_reason=finish_reason(row, self.ids, self.sched)))

    def abandon(self) -> None:
        """Lets go of every row, without an event: nobody waits for one any more."""
        for row in self.active:
            release_seq(self.sched, row.seq, cache=False)
        for parked in self.swapped:
            if self.spill is not None:
                remove_entry(self.spill, parked.swap_id)
        self.inbox.clear()
        self.waiting.clear()
        self.active.clear()
        self.swapped.clear()
        self.preempted.clear()


def _is_over(row: ActiveSeq, now: float) -> bool:
    if row.timeout_at is not None and now >= row.timeout_at and not row.finished:
        row.timed_out = True
    return row.cancelled or row.timed_out
