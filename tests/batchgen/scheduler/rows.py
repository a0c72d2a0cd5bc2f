"""Rows on a stub device, and the small parts around a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from batchgen.scheduler.ports import Io, SchedCtx
from batchgen.scheduler.sequences import ActiveSeq, RowEvent, RowSampling, SequenceState
from tests.batchgen.scheduler.stub_device import StubDevice


@dataclass
class Inbox:
    """A receiver that keeps what it is sent; `open` False: its client is gone."""

    events: list[RowEvent] = field(default_factory=list)
    open: bool = True

    def send(self, event: RowEvent) -> bool:
        self.events.append(event)
        return self.open

    @property
    def tokens(self) -> list[int]:
        return [event.token for event in self.events if event.token is not None]

    @property
    def finals(self) -> list[RowEvent]:
        return [event for event in self.events if event.kind != "token"]


@dataclass
class Ticks:
    """A clock that goes on by itself."""

    time: float = 0.0
    step: float = 1e-3

    def now(self) -> float:
        self.time += self.step
        return self.time


@dataclass
class Counts:
    counts: Counter[str] = field(default_factory=Counter)

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] += by


def context(device: StubDevice, **settings: Any) -> SchedCtx:
    return SchedCtx(Io(device, Ticks(), Counts()), **settings)


def counted(sched: SchedCtx) -> Counter[str]:
    assert isinstance(sched.io.telemetry, Counts)
    return sched.io.telemetry.counts


def inbox(row: ActiveSeq) -> Inbox:
    assert isinstance(row.receiver, Inbox)
    return row.receiver


def device_of(sched: SchedCtx) -> StubDevice:
    assert isinstance(sched.io.device, StubDevice)
    return sched.io.device


def bare_row(name: str, slot: int, ssm_slot: int | None = None, **settings: Any) -> ActiveSeq:
    """A row whose sequence is on no device."""
    row: dict[str, Any] = {"last_token": 1, "remaining": 100, "receiver": Inbox(), "sampling": RowSampling()}
    return ActiveSeq(name, SequenceState(slot, ssm_slot), **row | settings)


def admit(device: StubDevice, name: str, prompt: Sequence[int], **settings: Any) -> ActiveSeq:
    """A prefilled row; its first token is in its outputs and is the next input."""
    seq = device.alloc_sequence()
    device.prefill(prompt, seq)
    first = settings.pop("first", 1)
    row = bare_row(name, 0, prompt_tokens=len(prompt), output_tokens=[first], last_token=first, **settings)
    row.draws = 1
    row.seq = seq
    return row
