"""A small world for tokens: 40 ids of which seven are special, one receiver a row, a device that holds logits only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from batchgen.scheduler.errors import ReadbackError
from batchgen.scheduler.ports import (
    DecodeOutcome,
    Io,
    Levers,
    Limits,
    ReadbackKind,
    SchedCtx,
    Ticket,
    Vocabulary,
    Watchdogs,
)
from batchgen.scheduler.quirks import Quirks
from batchgen.scheduler.sequences import (
    ActiveSeq,
    RowEvent,
    RowSampling,
    SequenceState,
    Thinking,
    TokenIds,
    ToolCalls,
)
from batchgen.scheduler.tokens.decoded import process_decoded_token
from batchgen.scheduler.tokens.logits import process_decode_logits
from batchgen.scheduler.trace import StepTrace

VOCAB = 40
THINK_END, THINK_START, FENCE, CALL, CALL_END, EOS, RESPONSE = range(30, 37)
IDS = TokenIds(THINK_END, THINK_START, FENCE, CALL, CALL_END)
DOT, NEWLINE = 28, 29
#: Ids 0 to 27 are words that go on, 28 and 29 end a sentence.
WORDS = Vocabulary(
    sentence_end=frozenset({DOT, NEWLINE}),
    mid_word=frozenset(range(28)),
    texts=[chr(97 + i % 26) for i in range(28)] + [".", "\n"] + [""] * 10,
)


@dataclass
class Ear:
    """A receiver that keeps what it is told, and goes away after `patience` events."""

    patience: int = 1 << 30
    events: list[RowEvent] = field(default_factory=list)

    def send(self, event: RowEvent) -> bool:
        self.events.append(event)
        return len(self.events) < self.patience

    @property
    def tokens(self) -> list[int]:
        return [event.token for event in self.events if event.token is not None]


@dataclass
class Script:
    """A grammar hook that counts what it is asked."""

    accepted: list[int] = field(default_factory=list)
    stop_blocked: bool = False
    terminated: bool = False
    only: int | None = None
    legal: frozenset[int] | None = None

    def accept(self, token: int) -> None:
        self.accepted.append(token)

    def blocks_stop(self) -> bool:
        return self.stop_blocked

    def is_terminated(self) -> bool:
        return self.terminated

    def only_token(self) -> int | None:
        return self.only

    def allows(self, token: int) -> bool:
        return self.legal is None or token in self.legal


@dataclass
class Clock:
    time: float = 100.0

    def now(self) -> float:
        return self.time


@dataclass
class Counts:
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by


class LogitsDevice:
    """Has the logits of one launch, float32 or (`bf16`) bfloat16, and remembers what was released."""

    def __init__(self, logits: Any = None, bf16: bool = False, broken: bool = False) -> None:
        self.logits = np.zeros((0, VOCAB), np.float32) if logits is None else np.asarray(logits, np.float32)
        self.bf16, self.broken = bf16, broken
        self.released: list[tuple[SequenceState, bool]] = []
        self.reads = 0

    def read_logits(self, ticket: Ticket, staging: bytearray) -> DecodeOutcome:
        self.reads += 1
        if self.broken:
            raise ReadbackError("the copy was lost")
        data = self.logits.tobytes()
        if self.bf16:
            data = (self.logits.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        staging[:] = data
        rows, vocab = self.logits.shape
        return DecodeOutcome(ReadbackKind.HOST, rows, vocab, 2 if self.bf16 else 4)

    def release(self, seq: SequenceState, *, cache: bool) -> None:
        self.released.append((seq, cache))


def make_sched(device: Any = None, **settings: Any) -> SchedCtx:
    settings.setdefault("quirks", Quirks.corrected())
    io = Io(device or LogitsDevice(), Clock(), Counts())
    return SchedCtx(io, **settings)


def make_row(
    name: str = "r",
    *,
    outputs: Iterable[int] = (),
    remaining: int = 100,
    thinking: Thinking | None = None,
    tools: ToolCalls | None = None,
    sampling: RowSampling | None = None,
    ear: Ear | None = None,
    seq_len: int = 10,
    **more: Any,
) -> ActiveSeq:
    outputs = list(outputs)
    more.setdefault("ids", IDS)
    more.setdefault("eos_tokens", frozenset({EOS}))
    return ActiveSeq(
        request_id=name,
        seq=SequenceState(slot_idx=0, seq_len=seq_len),
        last_token=outputs[-1] if outputs else 0,
        remaining=remaining,
        receiver=ear or Ear(),
        sampling=sampling or RowSampling(),
        output_tokens=outputs,
        draws=len(outputs),
        thinking=thinking or Thinking(),
        tools=tools or ToolCalls(),
        **more,
    )


def heard(row: ActiveSeq) -> list[int]:
    assert isinstance(row.receiver, Ear)
    return row.receiver.tokens


def feed(row: ActiveSeq, tokens: Sequence[int], sched: SchedCtx | None = None, ids: TokenIds = IDS) -> None:
    """Tokens of as many steps, each with the token before it written to the model; stops where the row is finished."""
    sched = sched or make_sched()
    for token in tokens:
        if row.finished:
            return
        row.seq.seq_len += 1
        process_decoded_token(row, token, None, sched.io.clock.now(), ids, sched)


def step(
    active: list[ActiveSeq],
    logits: Any,
    sched: SchedCtx | None = None,
    *,
    argmax: bool = False,
    bf16: bool = False,
    adaptive: bool = False,
    ids: TokenIds = IDS,
    **more: Any,
) -> tuple[SchedCtx, StepTrace]:
    """One step: `logits` [rows, VOCAB], by way of the staging buffer or (`argmax`) as the device's own choice."""
    device = LogitsDevice(logits, bf16)
    sched = sched or make_sched()
    sched.io = Io(device, sched.io.clock, sched.io.telemetry)
    staging, trace, ticket = bytearray(), StepTrace(), Ticket(1)
    if argmax:
        rows, vocab = device.logits.shape
        tokens = tuple(int(token) for token in device.logits.argmax(1))
        outcome = DecodeOutcome(ReadbackKind.ARGMAX, rows, vocab, 4, tokens)
    else:
        outcome = device.read_logits(ticket, staging)
        device.reads = 0
    process_decode_logits(
        active,
        outcome,
        ticket,
        staging,
        sched.io.clock.now(),
        ids.think_end,
        ids.think_start,
        ids.code_fence,
        ids.tool_call_start,
        ids.tool_call_end,
        adaptive,
        sched,
        trace,
        **more,
    )
    return sched, trace


def peak(token: int, others: float = 0.0, height: float = 10.0) -> np.ndarray:
    """A row of logits whose maximum is at `token`."""
    logits = np.full(VOCAB, others, np.float32)
    logits[token] = height
    return logits


def settings(**more: Any) -> SchedCtx:
    """A context with some of Levers, Limits and Watchdogs set, by their field names."""
    parts = {"levers": Levers, "limits": Limits, "watchdogs": Watchdogs}
    chosen: dict[str, Any] = {}
    for name, kind in parts.items():
        mine = {key: more.pop(key) for key in list(more) if key in kind.__dataclass_fields__}
        chosen[name] = kind(**mine)
    return make_sched(**chosen, **more)
