"""A small engine around the step policy: admits, steps, retires, brings back; and what it saw on the way.

It decides nothing that the step policy decides. Requests come in order, as soon as the pool has their prompt and a
block more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from batchgen.scheduler.drain import fail_row, release_seq
from batchgen.scheduler.file_spill import FileSpill
from batchgen.scheduler.ports import Levers, Limits
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
from batchgen.scheduler.trace import StepTrace
from tests.batchgen.scheduler.rows import Inbox, bare_row, context
from tests.batchgen.scheduler.stub_device import StubDevice

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
    record: bool = True

    @property
    def ample(self) -> int:
        """Blocks with which nobody waits for anybody."""
        return sum(request.blocks(self.block_size) + 1 for request in self.requests)


@dataclass
class StepSeen:
    """A call of `step_decode_only`: the rows before it, the rows after it."""

    before: list[str]
    keys: dict[str, int]
    after: list[str]
    swapped: list[str]
    preempted: list[str]
    trace: StepTrace | None
    launches: list[tuple[tuple[int, ...], tuple[int, ...]]]  # tokens, slots
    freed: int


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
    traces: list[StepTrace] = field(default_factory=list)

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
        settings: dict[str, Any] = {"limits": limits, "quirks": scenario.quirks, "levers": Levers()}
        if scenario.record:
            settings["record"] = self.traces.append
        self.sched = context(self.device, **settings)
        self.spill: FileSpill | None = None
        if scenario.spill_budget:
            assert self.directory is not None, "a scenario with a spill store needs a folder"
            self.spill = FileSpill(self.directory, scenario.spill_budget)
        self.waiting = list(enumerate(scenario.requests))

    # -- one tick

    def tick(self) -> None:
        self._admit()
        self.step()
        self._retire()
        if not self.active and not self.waiting and not self.preempted and not self.swapped:
            return
        self.ended += sweep_parked(self.sched, self.spill, self.swapped, self.preempted)
        if self.spill is not None:
            swap_in(self.sched, self.spill, self.swapped, self.active)
        resume_preempted_seqs(self.sched, self.preempted, self.active)

    def step(self) -> None:
        device, active = self.device, self.active
        before, launched, freed = list(active), len(device.launches), len(device.released)
        keys = {row.request_id: row.seq.sort_key for row in active}
        step_decode_only(
            active,
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
        seen = StepSeen(
            [row.request_id for row in before],
            keys,
            [row.request_id for row in active],
            [parked.a.request_id for parked in self.swapped],
            [parked.a.request_id for parked in self.preempted],
            self.traces[-1] if self.traces else None,
            [(command.tokens, slots) for command, slots in device.launches[launched:]],
            len(device.released) - freed,
        )
        self.steps.append(seen)
        gone = set(seen.before) - set(seen.after) - set(seen.swapped) - set(seen.preempted)
        self.ended += [row for row in before if row.request_id in gone]

    @property
    def over(self) -> bool:
        return not (self.active or self.swapped or self.preempted or self.waiting)

    def run(self, after_tick: Callable[[World], None] | None = None, most: int = 2000) -> World:
        """To the end; AssertionError where it does not come within `most` ticks."""
        for _ in range(most):
            if self.over:
                break
            self.tick()
            if after_tick is not None:
                after_tick(self)
        assert self.over, f"{len(self.ended)} of {len(self.scenario.requests)} ended within {most} ticks"
        return self

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
            index, request = self.waiting[0]
            wanted = len(request.prompt) // device.block_size + 2
            if device.free_blocks < wanted and not device.reclaim(wanted - device.free_blocks):
                if wanted <= device.total_blocks and self.active:
                    return
                self._reject(index, request)
                continue
            if device.free_blocks < wanted:
                continue
            self.waiting.pop(0)
            row = self._row(index, request)
            row.seq = device.alloc_sequence()
            first = int(np.frombuffer(device.prefill(request.prompt, row.seq), np.float32).argmax())
            row.output_tokens, row.last_token, row.draws = [first], first, 1
            row.remaining -= 1
            row.finished = row.remaining == 0 or first == EOS
            row.receiver.send(RowEvent("token", first))
            self.active.append(row)
            self._retire()

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

    def _reject(self, index: int, request: Request) -> None:
        self.waiting.pop(0)
        row = self._row(index, request)
        row.receiver.send(RowEvent("error", text="the prompt does not fit the pool"))
        row.error = "the prompt does not fit the pool"
        self.ended.append(row)

    def _retire(self) -> None:
        for row in [row for row in self.active if row.finished]:
            self.active.remove(row)
            self.ended.append(row)
            if row.error is not None:
                fail_row(self.sched, row, row.error)
                continue
            release_seq(self.sched, row.seq, cache=True)
            row.receiver.send(RowEvent("done", finish_reason=finish_reason(row, IDS, self.sched)))
