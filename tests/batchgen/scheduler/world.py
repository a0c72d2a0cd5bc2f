"""A small engine around the step policy: admits, steps, retires, brings back; and what it saw on the way.

It decides nothing that the step policy decides. Requests come in order, as soon as the pool has their prompt and a
block more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from batchgen.scheduler.drain import fail_row, release_seq, send_error
from batchgen.scheduler.errors import LaunchError
from batchgen.scheduler.file_spill import FileSpill
from batchgen.scheduler.ports import Limits
from batchgen.scheduler.quirks import Quirks
from batchgen.scheduler.requeue import resume_preempted_seqs
from batchgen.scheduler.sequences import (
    ActiveSeq,
    PreemptedSeq,
    RowEvent,
    RowSampling,
    SwappedSeq,
    Thinking,
    TokenIds,
    ToolCalls,
)
from batchgen.scheduler.step import step_decode_only
from batchgen.scheduler.swap_in import swap_in
from batchgen.scheduler.sweep import sweep_parked
from batchgen.scheduler.tokens.finish import finish_reason
from batchgen.scheduler.trace import Planned, StepTrace
from tests.batchgen.scheduler.rows import Inbox, bare_row, context
from tests.batchgen.scheduler.stub_device import LaunchSeen, StubDevice

IDS = TokenIds(think_end=2, think_start=3, code_fence=4, tool_call_start=5, tool_call_end=6)
EOS = 0
GREEDY, CORRECTED = RowSampling(), Quirks.corrected()


@dataclass(frozen=True)
class Request:
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: RowSampling = GREEDY
    thinking_budget: int | None = None
    tools: bool = False
    deadline: float | None = None
    min_tokens: int = 0

    def blocks(self, size: int) -> int:
        """Of its longest history; the last token is never written."""
        return (len(self.prompt) + self.max_tokens - 2) // size + 1


@dataclass(frozen=True)
class Scenario:
    requests: tuple[Request, ...]
    total: int
    block_size: int = 4
    ssm: bool = True
    fp32: bool = True
    spill_budget: int = 0  # bytes; 0: no store
    immunity: int = 64
    max_batch: int = 16
    adaptive: bool = False
    quirks: Quirks = CORRECTED
    failures: tuple[tuple[str, Exception, int], ...] = ()  # point, error, calls before it


@dataclass(frozen=True)
class RowSeen:
    """A row as a step found it."""

    slot: int
    key: int
    seq_len: int
    last_token: int
    remaining: int
    outputs: tuple[int, ...]
    events: int
    immune_until: int
    first_block: int
    blocks: int

    @classmethod
    def of(cls, row: ActiveSeq) -> RowSeen:
        receiver = row.receiver
        assert isinstance(receiver, Inbox)
        return cls(
            row.seq.slot_idx,
            row.seq.sort_key,
            row.seq.seq_len,
            row.last_token,
            row.remaining,
            tuple(row.output_tokens),
            len(receiver.events),
            row.immune_until,
            row.seq.block_table[0] if row.seq.block_table else -1,
            len(row.seq.block_table),
        )


@dataclass
class StepSeen:
    """A call of `step_decode_only`: the rows before it in their order, and what came of it."""

    before: dict[str, RowSeen]
    parked_before: list[str]
    after: list[str]
    parked: list[str]
    trace: StepTrace
    launches: list[LaunchSeen]
    freed: int
    #: Whether the scratch holds the object that was lent.
    buffer_back: bool
    buffer_bytes: int

    @property
    def sorted(self) -> list[str]:
        """The names as the rule has them: ascending by key, as they came on a tie."""
        return sorted(self.before, key=lambda name: self.before[name].key)


@dataclass(frozen=True)
class ResumeSeen:
    """A parked row that came back."""

    parked: RowSeen
    tokens: tuple[int, ...]
    back: RowSeen
    back_tokens: tuple[int, ...]


@dataclass
class World:
    scenario: Scenario
    directory: Path | None = None
    active: list[ActiveSeq] = field(default_factory=list)
    swapped: list[SwappedSeq] = field(default_factory=list)
    preempted: list[PreemptedSeq] = field(default_factory=list)
    ended: list[ActiveSeq] = field(default_factory=list)
    rows: dict[str, ActiveSeq] = field(default_factory=dict)
    steps: list[StepSeen] = field(default_factory=list)
    resumes: list[ResumeSeen] = field(default_factory=list)
    traces: list[StepTrace] = field(default_factory=list)
    planned: list[Planned] = field(default_factory=list)

    def __post_init__(self) -> None:
        scenario = self.scenario
        self.device = StubDevice(
            total=scenario.total,
            block_size=scenario.block_size,
            slots=len(scenario.requests) + 1,
            ssm=scenario.ssm,
            logits_are_fp32=scenario.fp32,
        )
        for point, error, skip in scenario.failures:
            self.device.fail(point, error, skip=skip)
        limits = Limits(max_batch=scenario.max_batch, preempt_immunity=scenario.immunity)
        self.sched = context(
            self.device,
            limits=limits,
            quirks=scenario.quirks,
            record=self.traces.append,
            planned=self.planned.append,
        )
        self.spill: FileSpill | None = None
        if scenario.spill_budget:
            assert self.directory is not None, "a scenario with a spill store needs a folder"
            self.spill = FileSpill(self.directory, scenario.spill_budget)
        self.waiting = list(enumerate(scenario.requests))

    # -- one tick

    def stepping(self, most: int = 2000) -> Iterator[StepSeen]:
        """Ticks to the end, each seen right after its step; AssertionError where there is none within `most`."""
        for _ in range(most):
            if self.over:
                return
            self._admit()
            yield self.step()
            self._retire()
            self._bring_back()
        raise AssertionError(f"{len(self.ended)} of {len(self.scenario.requests)} ended within {most} ticks")

    def run(self) -> World:
        for _ in self.stepping():
            pass
        return self

    def _bring_back(self) -> None:
        self.ended += sweep_parked(self.sched, self.spill, self.swapped, self.preempted)
        parked = {p.a.request_id: (RowSeen.of(p.a), tuple(p.tokens)) for p in self._parked()}
        first_back = len(self.active)
        if self.spill is not None:
            swap_in(self.sched, self.spill, self.swapped, self.active)
        resume_preempted_seqs(self.sched, self.preempted, self.active)
        for row in self.active[first_back:]:
            self.resumes.append(
                ResumeSeen(*parked.pop(row.request_id), RowSeen.of(row), tuple(row.seq.tokens))
            )
        still = {p.a.request_id for p in self._parked()}
        self.ended += [self.rows[name] for name in parked if name not in still]

    def _parked(self) -> list[SwappedSeq | PreemptedSeq]:
        return [*self.swapped, *self.preempted]

    def step(self) -> StepSeen:
        device, scratch = self.device, self.sched.scratch
        before = {row.request_id: RowSeen.of(row) for row in self.active}
        parked_before = [p.a.request_id for p in self._parked()]
        launched, freed, lent = len(device.launches), len(device.released), scratch.host_bytes
        step_decode_only(
            self.active,
            IDS.think_end,
            IDS.think_start,
            IDS.code_fence,
            IDS.tool_call_start,
            IDS.tool_call_end,
            self.scenario.adaptive,
            self.sched,
            self.spill,
            self.swapped,
            self.preempted,
        )
        after = [row.request_id for row in self.active]
        parked = [p.a.request_id for p in self._parked()]
        self.steps.append(
            StepSeen(
                before,
                parked_before,
                after,
                parked,
                self.traces[-1],
                device.launches[launched:],
                len(device.released) - freed,
                scratch.host_bytes is lent,
                len(scratch.host_bytes),
            )
        )
        self.ended += [self.rows[name] for name in before if name not in after and name not in parked]
        return self.steps[-1]

    @property
    def over(self) -> bool:
        return not (self.active or self.swapped or self.preempted or self.waiting)

    def close(self) -> None:
        if self.spill is not None:
            self.spill.close()

    # -- what was seen

    @property
    def streams(self) -> dict[str, list[int]]:
        return {name: list(row.output_tokens) for name, row in self.rows.items()}

    @property
    def events(self) -> dict[str, list[RowEvent]]:
        return {name: self.inbox(name).events for name in self.rows}

    def inbox(self, name: str) -> Inbox:
        receiver = self.rows[name].receiver
        assert isinstance(receiver, Inbox)
        return receiver

    # -- what an engine does

    def _admit(self) -> None:
        device = self.device
        while self.waiting and len(self.active) < self.scenario.max_batch:
            if self.swapped or self.preempted:
                return
            wanted = (len(self.waiting[0][1].prompt) - 1) // device.block_size + 2
            if device.free_blocks < wanted:
                device.reclaim(wanted - device.free_blocks)
            if device.free_blocks < wanted and self.active:
                return
            self._prefill(*self.waiting.pop(0))
            self._retire()

    def _prefill(self, index: int, request: Request) -> None:
        row, device = self._row(index, request), self.device
        try:
            row.seq = device.alloc_sequence()
        except LaunchError as error:
            self.ended.append(row)
            return send_error(row, str(error))
        try:
            first = int(np.frombuffer(device.prefill(request.prompt, row.seq), np.float32).argmax())
        except LaunchError as error:
            self.ended.append(row)
            return fail_row(self.sched, row, str(error))
        row.output_tokens, row.last_token, row.draws = [first], first, 1
        row.remaining -= 1
        row.finished = row.remaining == 0 or first == EOS
        row.receiver.send(RowEvent("token", first))
        self.active.append(row)

    def _row(self, index: int, request: Request) -> ActiveSeq:
        row = bare_row(
            f"r{index}",
            0,
            remaining=request.max_tokens,
            receiver=Inbox(),
            sampling=request.sampling,
            ids=IDS,
            eos_tokens=frozenset({EOS}),
            prompt_tokens=len(request.prompt),
            thinking=Thinking(
                inside=request.thinking_budget is not None,
                enabled=request.thinking_budget is not None,
                budget=request.thinking_budget,
            ),
            tools=ToolCalls(requested=request.tools, tools_present=request.tools),
            timeout_at=request.deadline,
            min_tokens=request.min_tokens,
        )
        self.rows[row.request_id] = row
        return row

    def _retire(self) -> None:
        for row in [row for row in self.active if row.finished]:
            self.active.remove(row)
            self.ended.append(row)
            if row.error is not None:
                fail_row(self.sched, row, row.error)
                continue
            release_seq(self.sched, row.seq, cache=True)
            row.receiver.send(RowEvent("done", finish_reason=finish_reason(row, IDS, self.sched)))
