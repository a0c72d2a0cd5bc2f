"""What too small a pool costs the step policy, and what the sort of its rows is worth to a hybrid model.

``python -m benchmarks.step_pressure``: the same requests on ``smollm2`` in an ample pool, and with spill in one of 65 %
of the pages that they held at their peak there. Exit code 1 where the small pool gives less than 0.85 of the tokens per
second, or a generated token is thrown away. Both are run in turns, and the best of each counts: other work on the
machine only ever slows a run down. Tokens per second of CPU time are shown beside.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from dataclasses import dataclass

import torch

from batchgen.engine import EngineOptions, build_step_worker
from batchgen.requests.types import TokenizedRequest, WorkerProgress
from batchgen.sampling import SamplingParams
from batchgen.scheduler import step
from benchmarks.ratios import Ratio, tell

SHARE, BAR = 0.65, 0.85
AMPLE = 400


@dataclass(frozen=True)
class Measured:
    """`held`: the most pages at a time. `discarded`: tokens that were generated and are in no result."""

    tokens: int
    seconds: float
    cpu: float
    batch: float
    held: int
    discarded: int
    stats: dict[str, int | float]

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds

    def line(self, name: str, pages: int) -> str:
        parked = self.stats["spilled"] + self.stats["requeued"]
        return (
            f"  {name:6} {pages:4} pages: {self.rate:7.1f} tokens/s ({self.tokens / self.cpu:.1f} a CPU second), mean "
            f"batch {self.batch:.2f}, {parked} times parked, {self.discarded} tokens discarded"
        )


def say(text: str) -> None:
    print(f"  ... {text}", file=sys.stderr, flush=True)


def requests_for(model: str, count: int, vocabulary: tuple[int, int]) -> list[TokenizedRequest]:
    rng = random.Random(0)
    return [
        TokenizedRequest(
            f"{model}-{number}",
            tuple(rng.randrange(*vocabulary) for _ in range(rng.randint(16, 64))),
            SamplingParams(max_tokens=rng.randint(32, 128), ignore_eos=True),
        )
        for number in range(count)
    ]


def measure(
    requests: list[TokenizedRequest], pages: int, batch: int, model: str, threads: int, spilling: bool
) -> Measured:
    held = 0

    def watch(progress: WorkerProgress) -> None:
        nonlocal held
        held = max(held, progress.gpu_pages_used)

    with tempfile.TemporaryDirectory() as folder:
        options = EngineOptions(
            model=model,
            policy="step",
            device="cpu",
            page_size=16,
            max_batch_size=batch,
            gpu_kv_pages=pages,
            threads=threads,
            spill_dir=folder if spilling else None,
        )
        worker = build_step_worker(options)
        try:
            started, cpu = time.perf_counter(), time.process_time()
            results = worker.generate(requests, on_progress=watch)
            seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
            stats = worker.stats()
        finally:
            worker.close()
    failed = [result.detail for result in results if result.finish_reason == "error"]
    if failed or len(results) != len(requests):
        raise SystemExit(f"{len(failed)} of {len(requests)} requests failed: {failed[:1]}")
    tokens = sum(len(result.token_ids) for result in results)
    # A prefill gives each request its first token, each row of a step one more.
    discarded = int(stats["decode_rows"]) + len(requests) - tokens
    rows = stats["decode_rows"] / stats["decode_steps"]
    return Measured(tokens, seconds, cpu, rows, held, discarded, stats)


def pressure(count: int, batch: int, rounds: int, threads: int) -> int:
    requests = requests_for("smollm2", count, (300, 20_000))
    say(f"{count} requests in an ample pool")
    peak = measure(requests, AMPLE, batch, "smollm2", threads, spilling=False)
    pages = int(SHARE * peak.held)
    ample, scarce = [peak], []
    for turn in range(rounds):
        say(f"round {turn + 1} of {rounds}: a pool of {pages} pages")
        scarce.append(measure(requests, pages, batch, "smollm2", threads, spilling=True))
        if len(ample) < rounds:
            say(f"round {turn + 2} of {rounds}: an ample pool")
            ample.append(measure(requests, AMPLE, batch, "smollm2", threads, spilling=False))
    best, under = max(ample, key=lambda run: run.rate), max(scarce, key=lambda run: run.rate)
    print(
        f"smollm2, {count} requests, at most {batch} rows; {pages} pages are {SHARE:.0%} of the peak of {peak.held}"
    )
    print(best.line("ample", AMPLE))
    print(under.line("scarce", pages))
    ratio, cpu = under.rate / best.rate, (under.tokens / under.cpu) / (best.tokens / best.cpu)
    figures = {"by CPU time": cpu, "tokens/s": under.rate, "ample tokens/s": best.rate}
    name = f"smollm2 in {batch} rows, a pool of {SHARE:.0%} of its peak"
    told = tell(Ratio(name, ratio, "the ample pool's tokens per second", BAR, figures=figures))
    return int(not told.holds or under.discarded != 0)


def recurrence(threads: int) -> None:
    """The share of steps with several rows that take the batched recurrence."""
    requests = requests_for("tiny-hybrid", 64, (32, 127))
    for pages in (AMPLE, 60):
        say(f"tiny-hybrid in {pages} pages, with and without the sort")
        shares = []
        original = step.sort_rows
        for sort in (original, lambda sched, active: None):
            step.sort_rows = sort
            try:
                stats = measure(requests, pages, 8, "tiny-hybrid", threads, spilling=True).stats
            finally:
                step.sort_rows = original
            several = sum(stats.get(f"recurrence_{route}", 0) for route in ("batched", "unsorted", "gap"))
            shares.append(stats.get("recurrence_batched", 0) / several)
        tell(
            Ratio(
                f"tiny-hybrid in {pages} pages, batched recurrence",
                100 * shares[0],
                "the steps with several rows",
                unit="%",
                figures={"without the sort %": 100 * shares[1]},
            )
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args(arguments)
    logging.getLogger("batchgen.scheduler").setLevel(logging.CRITICAL)
    torch.manual_seed(0)
    code = pressure(chosen.requests, chosen.batch, chosen.rounds, chosen.threads)
    recurrence(chosen.threads)
    return code


if __name__ == "__main__":
    sys.exit(main())
