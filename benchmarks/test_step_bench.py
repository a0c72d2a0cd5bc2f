"""What a decode step of the step policy costs beside the forward and the host's sampling, a row at batch 64."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle

import pytest

from batchgen.bench import run_bench
from batchgen.scheduler.ports import Decode, DecodeOutcome, Io, Levers, ReadbackKind, SchedCtx, Ticket
from batchgen.scheduler.sequences import ActiveSeq, RowEvent, RowSampling, SequenceState
from batchgen.scheduler.step import step_decode_only
from batchgen.scheduler.trace import Planned, StepTrace
from benchmarks.ratios import Ratio, tell

BATCH, VOCAB, STEPS, ROUNDS = 64, 50_000, 50, 7
MICROSECONDS_A_ROW = 30


@dataclass
class FreeDevice:
    """Its launch costs nothing: the tokens are there already."""

    block_size: int = 16
    vocab_size: int = VOCAB
    logits_are_fp32: bool = False
    lost: bool = False
    free_blocks: int = 1 << 20
    total_blocks: int = 1 << 20
    outcomes: Iterator[DecodeOutcome] = field(default_factory=lambda: cycle(some_outcomes()))

    def launch(self, command: Decode, seqs: Sequence[SequenceState], staging: bytearray) -> Ticket:
        return Ticket(1)

    def wait(self, ticket: Ticket) -> DecodeOutcome:
        return next(self.outcomes)


def some_outcomes() -> list[DecodeOutcome]:
    rng = random.Random(1)
    return [
        DecodeOutcome(
            ReadbackKind.ARGMAX, BATCH, VOCAB, 2, tuple(rng.randrange(10, VOCAB) for _ in range(BATCH))
        )
        for _ in range(STEPS)
    ]


class Nowhere:
    def send(self, event: RowEvent) -> bool:
        return True


class Clock:
    now = staticmethod(time.monotonic)


class Uncounted:
    def count(self, name: str, by: int = 1) -> None: ...


def rows() -> list[ActiveSeq]:
    """Mid-way through their answers; they come in another order each step, as after a resume."""
    return [
        ActiveSeq(
            f"request-{slot}",
            SequenceState(slot, BATCH - slot, 500, [], list(range(32))),
            last_token=7,
            remaining=1 << 30,
            receiver=Nowhere(),
            sampling=RowSampling(),
            eos_tokens=frozenset({2}),
            output_tokens=[random.Random(slot * 1000 + i).randrange(10, VOCAB) for i in range(300)],
        )
        for slot in range(BATCH)
    ]


def microseconds_a_row(**settings: object) -> float:
    """Of the fastest of some rounds: what else runs on the machine only adds."""
    sched = SchedCtx(Io(FreeDevice(), Clock(), Uncounted()), **settings)  # type: ignore[arg-type]
    best = float("inf")
    for _ in range(ROUNDS):
        active = rows()
        random.Random(0).shuffle(active)
        started = time.process_time()
        for _ in range(STEPS):
            step_decode_only(active, 3, 4, 5, 6, 8, False, sched, None, [], [])
        best = min(best, time.process_time() - started)
        assert len(active) == BATCH and len(active[0].output_tokens) == 300 + STEPS
    return best / STEPS / BATCH * 1e6


@pytest.mark.parametrize("kind", ["plain", "traced", "traced with plans and rows"])
def test_a_row_of_a_step(kind: str) -> None:
    """Bar: 30 microseconds a row, the trace of the step included."""
    traces: list[StepTrace] = []
    plans: list[Planned] = []
    settings: dict[str, object] = {}
    if kind != "plain":
        settings["record"] = traces.append
    if kind == "traced with plans and rows":
        settings |= {"planned": plans.append, "levers": Levers(trace_rows=True)}
    cost = microseconds_a_row(**settings)
    bar = None if kind == "traced with plans and rows" else MICROSECONDS_A_ROW
    name = f"a row of a step of {BATCH}, {kind}"
    assert tell(Ratio(name, cost, "processor time", bar, at_least=False, unit="us")).holds


def test_share_of_a_step_of_smollm2() -> None:
    """All rows are chosen on the device here, as none needs the host: what is left of the step is all that counts."""
    cost = BATCH * microseconds_a_row() / 1000
    forward = run_bench(
        "smollm2",
        batch=BATCH,
        prompt_tokens=16,
        new_tokens=6,
        repeat=1,
        threads=2,
        with_hf=False,
        note=lambda text: None,
    )
    share = 100 * cost / forward.step_ms
    figures = {"own ms": cost, "forward ms": forward.step_ms}
    name = f"a step of {BATCH} rows without its forward"
    assert tell(Ratio(name, share, "smollm2's step", 100, at_least=False, unit="%", figures=figures)).holds
