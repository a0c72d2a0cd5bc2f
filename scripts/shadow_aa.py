"""`make aa`: the same worker on both sides, again and again. Whatever is found then is a false alarm.

Half of the runs are identical; in the other half the sides differ in a way that may not count: the order of the
batch, the buckets of the static buffers, the number of threads, bf16. A run is one batch of at least 64 decode
steps of `tiny` at page size 16; many runs share one live worker a side. Ends with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from rich.console import Console

from shadow.diff import Comparison
from shadow.messages import Setup
from shadow.noise import Class, NoiseFloor
from shadow.noise.classes import observed, rules
from shadow.noise.conditions import conditions_of
from shadow.noise.judging import Judge
from shadow.noise.measure import NotMeasured, measure_class
from shadow.observation import Event, Point
from shadow.pair import compare_sides
from shadow.pairing import BATCH_ORDER, BUCKET, SAME, Pairing
from shadow.tally import Tally
from shadow.workloads import Batch, Request, write_batches
from shadow.workloads.requests import random_prompt

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "out" / "shadow"
STEPS, PAGE = 64, 16
CALIBRATION, MARGIN = 20, 2.0
OPTIONS: dict[str, object] = {
    "model": "tiny",
    "device": "cpu",
    "page_size": PAGE,
    "gpu_kv_pages": 20,
    "host_kv_pages": 40,
    "max_batch_size": 4,
}
ROOMY: dict[str, object] = {"gpu_kv_pages": 80, "host_kv_pages": 160}
console = Console()


@dataclass(frozen=True)
class Form:
    """One way in which the sides differ. `row_exact`: results may not depend on what else is in the batch.

    `noise`: bits may differ; what differs is judged by bounds that further A/A runs gave before.
    """

    name: str
    pairing: Pairing
    share: float
    row_exact: bool = False
    noise: Class | None = None
    threads: int = 1
    shuffled: bool = (
        False  # in pools with room for all: which of two equals is loaded first depends on the order
    )
    options: tuple[tuple[str, object], ...] = ()

    def sides(self, batches: tuple[str, ...], seed: int) -> tuple[Setup, Setup]:
        options = {**OPTIONS, "row_exact": self.row_exact, **(ROOMY if self.shuffled else {})}
        control = Setup(str(ROOT), batches, 1, options, {"BATCHGEN_REP_DETECTION": "0"})
        if self.noise is not None:
            control = observed(control, self.noise)
        candidate = replace(
            control,
            options={**options, **dict(self.options)},
            threads=self.threads,
            order=seed if self.shuffled else None,
        )
        return control, candidate


FORMS = (
    Form("identical", SAME, 0.5),
    Form("batch order", BATCH_ORDER, 0.15, row_exact=True, shuffled=True),
    Form("one bucket", BUCKET, 0.1, row_exact=True, options=(("cuda_graph_num_buckets", 1),)),
    Form("no static buffers", BUCKET, 0.1, row_exact=True, options=(("cuda_graphs", False),)),
    Form("two threads", rules(Class.THREADS), 0.05, noise=Class.THREADS, threads=2),
    Form("bf16", rules(Class.DTYPE), 0.1, noise=Class.DTYPE, options=(("dtype", "bfloat16"),)),
)


@dataclass
class Score:
    """What the runs of one form came to. `values`: compared, on both sides; `alarms`: the first of each."""

    runs: int = 0
    steps: int = 0
    values: int = 0
    alarms: list[str] = field(default_factory=list)
    seconds: float = 0.0


def batch(number: int, rng: random.Random) -> Batch:
    """Two to four rows, the longest of which takes the steps of a run; lengths around whole pages."""
    caps = [STEPS + 1, *(rng.randint(1, STEPS) for _ in range(rng.randint(1, 3)))]
    lengths = [max(1, rng.randint(0, 3) * PAGE + rng.choice((-1, 0, 1, 5))) for _ in caps]
    return Batch(
        f"run{number}",
        tuple(
            Request(f"{number}-{row}", random_prompt(rng, length), cap)
            for row, (length, cap) in enumerate(zip(lengths, caps, strict=True))
        ),
    )


def sessions(runs: int, size: int) -> Iterator[tuple[int, int]]:
    """(number of the first run, how many) of each live worker."""
    for first in range(0, runs, size):
        yield first, min(size, runs - first)


def judge_of(form: Form) -> Judge | None:
    """What judges the differences of a form whose bits may differ, from runs of its own."""
    if form.noise is None:
        return None
    rng = random.Random(f"{form.name}: noise")
    with tempfile.TemporaryDirectory(prefix="shadow-aa-") as folder:
        control, _ = form.sides(write_batches([batch(0, rng)], Path(folder)), seed=0)
        bounds = measure_class(control, form.noise, CALIBRATION, Path(folder), margin=MARGIN, timeout=600)
        if isinstance(bounds, NotMeasured):
            raise SystemExit(f"{form.name}: {bounds.reason}")
        return Judge(NoiseFloor(conditions_of(control), bounds), form.noise)


def session(form: Form, first: int, count: int, score: Score, judge: Judge | None) -> None:
    """Some runs on one live worker a side; the first alarm ends them."""
    rng = random.Random(f"{form.name}:{first}")
    batches = [batch(first + number, rng) for number in range(count)]
    steps: dict[int, int] = {}

    def watch(control: Event, candidate: Event) -> None:
        if control.point is Point.DECODE:
            steps[control.batch] = steps.get(control.batch, 0) + 1

    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="shadow-aa-") as folder:
        control, candidate = form.sides(write_batches(batches, Path(folder)), seed=first)
        tally, outcome = compare_sides(
            control,
            candidate,
            timeout=600,
            pairing=form.pairing,
            watch=watch,
            stop=_anything,
            review=judge or _unjudged,
        )
    score.seconds += time.monotonic() - started
    score.runs += sum(number >= STEPS for number in steps.values())
    score.steps += sum(steps.values())
    score.values += tally.compared.total()
    if tally.first is not None:
        score.alarms.append(f"run {first + len(steps) - 1}: {tally.first}")
    elif outcome.trouble is not None:
        score.alarms.append(f"runs from {first}: {outcome.trouble.message}")
    elif len(steps) < count or min(steps.values()) < STEPS:
        score.alarms.append(f"runs from {first}: only {steps} steps were compared")


def _unjudged(control: Event, candidate: Event, comparison: Comparison) -> Comparison:
    return comparison


def _anything(tally: Tally) -> bool:
    return tally.total > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--session", type=int, default=25, help="runs on one live worker")
    parser.add_argument("--only", choices=[form.name for form in FORMS])
    arguments = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    scores = {form.name: Score() for form in FORMS if arguments.only in (None, form.name)}
    for form in FORMS:
        if form.name not in scores:
            continue
        score = scores[form.name]
        judge = judge_of(form)
        for first, count in sessions(max(1, round(arguments.runs * form.share)), arguments.session):
            session(form, first, count, score, judge)
            console.print(
                f"{form.name}: {score.runs} runs, {score.steps:,} steps, {score.values:,} values, "
                f"[bold]{len(score.alarms)} alarms[/bold] ({1000 * score.seconds / max(1, score.steps):.0f} ms/step)"
            )
            for alarm in score.alarms[-1:]:
                console.print(f"  [red]{alarm}[/red]", highlight=False)
            told = {name: asdict(value) for name, value in scores.items()}
            (OUT / "aa.json").write_text(json.dumps(told, indent=1) + "\n")
    alarms = sum(len(score.alarms) for score in scores.values())
    runs = sum(score.runs for score in scores.values())
    colour = "red" if alarms else "green"
    console.print(f"[bold {colour}]{alarms} alarms in {runs:,} A/A runs of at least {STEPS} steps[/]")
    return 1 if alarms or (runs < arguments.runs and arguments.only is None) else 0


if __name__ == "__main__":
    sys.exit(main())
