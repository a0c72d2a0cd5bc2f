"""The step policy for as long as it takes: many requests of all lengths in a pool of a third of what they want.

``python -m benchmarks.step_soak``: requests arrive as they like, some are cancelled, some run out of time, the spill
store is too small for all that is parked. Time is that of the ticks, so a seed gives the same run again. Prints a
ledger; exit code 1 where a page or a spill byte is missing from it, or a request has not ended exactly once.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from batchgen.models import load_model
from batchgen.requests.types import GenerationResult, StepParams, TokenizedRequest
from batchgen.sampling import SamplingParams
from batchgen.scheduler.engine.admission import blocks_of
from batchgen.scheduler.engine.device import ModelDevice
from batchgen.scheduler.engine.loop import Knobs
from batchgen.scheduler.engine.worker import StepWorker
from batchgen.scheduler.file_spill import FileSpill

BLOCK, BATCH = 8, 48
TICK_SECONDS = 0.01
#: Requests that arrive in a second of ticks: somewhat more than the pool finishes.
RATE = 60.0


@dataclass(frozen=True)
class Plan:
    """When a request arrives, and when it is cancelled (None: it is not), in seconds of ticks."""

    request: TokenizedRequest
    arrives: float
    cancelled: float | None


@dataclass
class TickClock:
    """`Clock` that goes on with each tick."""

    ticks: int = 0

    def now(self) -> float:
        return self.ticks * TICK_SECONDS


@dataclass
class Ledger:
    """What came of it. `faults`: one line each, none where all is well."""

    ends: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    ticks: int = 0
    seconds: float = 0.0
    pages: int = 0
    demand: int = 0
    stats: dict[str, int | float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        stats = Counter(self.stats)
        ended = ", ".join(f"{count} {reason}" for reason, count in self.ends.most_common())
        steps = stats["decode_steps"] or 1
        yield (
            f"soak: {sum(self.ends.values())} requests, {self.tokens} tokens, {self.ticks} ticks, "
            f"{self.seconds:.0f} s; a pool of {self.pages} pages for a demand of {self.demand}"
        )
        yield f"  ended once each: {ended}"
        yield (
            f"  made room: {stats['spilled'] + stats['requeued']} ({stats['preempted']} at a step, "
            f"{stats['swapped_out']} for a newcomer; {stats['spilled']} spilled, {stats['requeued']} requeued, "
            f"{stats['spill_failed']} spills refused)"
        )
        yield (
            f"  came back: {stats['swapped_in']} from the store, {stats['resumed']} by a prefill; "
            f"{stats['ended_parked']} ended while parked"
        )
        yield f"  batch: {stats['decode_rows'] / steps:.1f} rows a step of {BATCH}"
        yield f"  spill store: {stats['spill_bytes']} bytes now, {stats['spill_peak_bytes']} at most"
        yield from (f"  FAULT: {fault}" for fault in self.faults)
        if not self.faults:
            yield "  nothing leaked"


def plans(count: int, seed: int) -> list[Plan]:
    """Poisson arrivals; one request in seven may be cancelled before it ends, one in seven has little time."""
    rng = random.Random(seed)
    now, made = 0.0, []
    for number in range(count):
        now += rng.expovariate(RATE)
        long = rng.random() < 0.25
        hurried = rng.random() < 0.15
        request = TokenizedRequest(
            f"r{number}",
            tuple(rng.randrange(32, 127) for _ in range(rng.randint(1, 200 if long else 32))),
            SamplingParams(
                max_tokens=rng.randint(1, 240 if long else 40),
                temperature=rng.choice((0.0, 0.8)),
                seed=number,
                ignore_eos=rng.random() < 0.5,
            ),
            StepParams(timeout=rng.uniform(0.0, 2.0) if hurried else None),
        )
        made.append(Plan(request, now, now + rng.uniform(0.0, 2.0) if rng.random() < 0.15 else None))
    return made


def demand_of(made: list[Plan]) -> int:
    """Pages of a full batch of requests at their full length, on the average."""
    pages = [blocks_of(len(p.request.prompt_token_ids) + p.request.sampling.max_tokens, BLOCK) for p in made]
    return BATCH * sum(pages) // len(pages)


def soak(count: int, *, seed: int, model: str, directory: Path) -> Ledger:
    made = plans(count, seed)
    ledger = Ledger(demand=demand_of(made))
    largest = max(
        blocks_of(len(p.request.prompt_token_ids) + p.request.sampling.max_tokens, BLOCK) for p in made
    )
    ledger.pages = max(ledger.demand // 3, largest + 1)
    loaded = load_model(model)
    device = ModelDevice(loaded, num_blocks=ledger.pages, block_size=BLOCK, max_batch=BATCH)
    page_bytes = device.pool_bytes // ledger.pages
    clock = TickClock()
    spill = FileSpill(directory, ledger.pages * page_bytes // 8)
    worker = StepWorker(
        loaded, device, max_batch=BATCH, knobs=Knobs(512, patience=8), spill=spill, clock=clock
    )
    started = time.perf_counter()
    try:
        _run(worker, clock, made, ledger)
        _check_end(worker, ledger, directory)
    finally:
        worker.close()
    ledger.ticks, ledger.seconds = clock.ticks, time.perf_counter() - started
    left = [path.name for path in directory.rglob("*")]
    if left:
        ledger.faults.append(f"{directory} still holds {left}")
    return ledger


def _run(worker: StepWorker, clock: TickClock, made: list[Plan], ledger: Ledger) -> None:
    answered: Counter[str] = Counter()

    def deliver(result: GenerationResult) -> None:
        answered[result.custom_id] += 1
        ledger.ends[result.finish_reason] += 1
        ledger.tokens += len(result.token_ids)
        if result.finish_reason == "error":
            ledger.faults.append(f"{result.custom_id} failed: {result.detail}")

    arriving = list(reversed(made))
    to_cancel = sorted((p for p in made if p.cancelled is not None), key=lambda p: -(p.cancelled or 0))
    while arriving or not worker.loop.is_idle:
        clock.ticks += 1
        while arriving and arriving[-1].arrives <= clock.now():
            worker.submit(arriving.pop().request, deliver)
        while to_cancel and (to_cancel[-1].cancelled or 0) <= clock.now():
            worker.cancel(to_cancel.pop().request.custom_id)
        worker.tick()
        _check_tick(worker, clock.ticks, ledger)
    wrong = [p.request.custom_id for p in made if answered[p.request.custom_id] != 1]
    if wrong:
        ledger.faults.append(f"{len(wrong)} requests did not end exactly once, among them {wrong[:3]}")


def _check_tick(worker: StepWorker, tick: int, ledger: Ledger) -> None:
    device = worker.device
    held = sum(row.num_blocks for row in worker.loop.active)
    if device.free_blocks + device.cached_blocks + held != device.total_blocks:
        ledger.faults.append(
            f"tick {tick}: {device.free_blocks} free, {device.cached_blocks} cached and {held} held pages are not "
            f"{device.total_blocks}"
        )
    if tick % 64 == 0:
        device.check_invariants()


def _check_end(worker: StepWorker, ledger: Ledger, directory: Path) -> None:
    device = worker.device
    device.check_invariants()
    device.reclaim(device.total_blocks)
    ledger.stats = worker.stats()
    if device.free_blocks != device.total_blocks:
        ledger.faults.append(f"{device.total_blocks - device.free_blocks} pages never came back")
    assert worker.spill is not None
    usage = worker.spill.usage()
    files = [path for path in directory.rglob("*") if path.is_file()]
    if usage.entries or usage.bytes or files:
        ledger.faults.append(
            f"the spill store still counts {usage.bytes} bytes, {len(files)} files are there"
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="tiny", help="tiny, tiny-dual or tiny-hybrid")
    chosen = parser.parse_args(arguments)
    logging.getLogger("batchgen.scheduler").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        ledger = soak(chosen.requests, seed=chosen.seed, model=chosen.model, directory=Path(folder))
    print("\n".join(ledger.lines()))
    return 1 if ledger.faults else 0


if __name__ == "__main__":
    sys.exit(main())
