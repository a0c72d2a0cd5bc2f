"""Records: replay, first divergence, full comparison and size, each against its bar, in processor time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from benchmarks.decode_stream import BATCH, ROOT, Decode, record
from benchmarks.ratios import Ratio, tell
from shadow.observation import Event, Kind
from shadow.record.diff import diff_records, first_divergence, judge_of
from shadow.record.fleet.engine import Done
from shadow.record.fleet.local import LocalEngine
from shadow.record.fleet.run import replay_all
from shadow.record.one import Work
from shadow.record.reader import open_record
from shadow.record.replay import replay_record
from shadow.record.replays import replays_of
from shadow.tally import Tally

ROUNDS = 3
PLANS_A_SECOND = 100_000
FIRST_DIVERGENCE_SECONDS, FULL_REPORT_SECONDS = 0.05, 2.0
BYTES_A_STEP = 1000
STEPS = 10_000


def best(work: Callable[[], object]) -> float:
    """Processor seconds of the fastest of some runs."""
    times = []
    for _ in range(ROUNDS):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def faulty(events: list[Event], step: int) -> list[Event]:
    """Every token differs, from that step on."""
    return [
        event
        if event.step < step
        else replace(event, values={k: -1 if k.kind is Kind.TOKENS else v for k, v in event.values.items()})
        for event in events
    ]


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return list(Decode(tokens=300).events(STEPS))


@pytest.fixture(scope="module")
def run(events: list[Event], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("records") / "run", iter(events))


@dataclass(frozen=True)
class Plan:
    """What a program without a record would keep and compare of one sequence in one step."""

    step: int
    sequence: str
    kv_len: int
    pages: tuple[int, ...]


def plans_of(events: list[Event]) -> list[Plan]:
    plans = []
    for event in events:
        by_name: dict[tuple[str | None, str], object] = {
            (k.sequence, k.field): v for k, v in event.values.items()
        }
        for (name, field), value in by_name.items():
            if field == "kv_len" and name is not None:
                pages = by_name[name, "primary.live_pages"]
                plans.append(Plan(event.step, name, value, tuple(pages.ids)))  # type: ignore[arg-type,attr-defined]
    return plans


def test_replay_a_core(run: Path, events: list[Event]) -> None:
    """Bar: 100,000 plans a second and core, decoding, planning and comparing included."""
    counted: dict[str, int] = {}
    replays, _ = replays_of(open_record(run), ROOT)  # a start: torch and the tree's modules

    def replayed(names: tuple[str, ...]) -> Callable[[], None]:
        def work() -> None:
            tally = Tally()
            counted.update(replay_record(open_record(run), {name: replays[name] for name in names}, tally))
            assert tally.total == 0

        return work

    rates = {}
    for names in (("step", "boundary"), ("step",), ("boundary",)):
        seconds = best(replayed(names))
        rates["+".join(names)] = sum(counted[name] for name in names) / seconds
    plans, others = plans_of(events[:2000]), plans_of(events[:2000])
    equals = len(plans) / best(lambda: sum(a == b for a, b in zip(plans, others, strict=True)))
    figures = {f"{name} plans/s": rate for name, rate in rates.items()}
    ratio = Ratio(
        "replay, plans a second and core",
        rates["step+boundary"] / PLANS_A_SECOND,
        f"{PLANS_A_SECOND:,}",
        1,
        figures={**figures, "== of frozen dataclasses in memory /s": equals},
    )
    assert tell(ratio).holds


def test_first_divergence_in_ten_thousand_steps(run: Path, events: list[Event], tmp_path: Path) -> None:
    """Bars: found in 50 ms once both are open; a full report in two seconds, also when all after it differs."""
    for step in (STEPS // 2, STEPS - 1):
        other = record(tmp_path / f"other-{step}", iter(faulty(events, step)))
        opened = best(lambda path=other: open_record(path))
        legacy, candidate = open_record(run), open_record(other)
        judge = judge_of(legacy, candidate)
        found = first_divergence(legacy, candidate, judge)
        assert found is not None and (found.step, found.kind) == (step, Kind.TOKENS)
        first = best(partial(first_divergence, legacy, candidate, judge))
        full = best(lambda pair=(legacy, candidate), judge=judge: diff_records(*pair, judge, Tally()))
        at = f"at step {step:,} of {STEPS:,}"
        bar = FIRST_DIVERGENCE_SECONDS
        figures = {"ms": 1000 * first, "opening ms": 1000 * opened}
        found_first = tell(
            Ratio(f"first divergence {at}", first / bar, f"{bar} s", 1, at_least=False, figures=figures)
        )
        bar = FULL_REPORT_SECONDS
        report = tell(
            Ratio(f"full report {at}", full / bar, f"{bar} s", 1, at_least=False, figures={"s": full})
        )
        assert found_first.holds and report.holds


def test_bytes_of_a_steady_step(tmp_path: Path) -> None:
    """Bar: 1 KB a step at page 16, batch 32: everything of a step, boundaries included."""
    path = record(tmp_path / "steady", Decode(tokens=1 << 20).events(2000))
    size = path.stat().st_size / 2000
    name = f"record of a steady step, batch {BATCH}"
    assert tell(Ratio(name, size, "1 KB", BYTES_A_STEP, at_least=False, unit="bytes")).holds


def test_two_jobs_against_one(tmp_path: Path) -> None:
    """Bar: 1.6 times the plans a second, with workers that have started; the machine must have two cores to give."""
    first = record(tmp_path / "0.record", Decode(tokens=300).events(STEPS))
    paths = [first, *(tmp_path / f"{number}.record" for number in range(1, 8))]
    for path in paths[1:]:
        shutil.copy(first, path)
    plans = STEPS * BATCH * len(paths)
    with closing(LocalEngine(Work(), 1)) as one, closing(LocalEngine(Work(), 2)) as two:
        rates: dict[int, float] = {}
        for _ in range(1 + ROUNDS):  # the first starts the workers
            for engine in (one, two):
                started = time.perf_counter()
                answers = list(replay_all(paths, engine))
                seconds = time.perf_counter() - started
                assert sum(a.replayed.plans["step"] for a in answers if isinstance(a, Done)) == plans
                rates[engine.slots] = max(rates.get(engine.slots, 0.0), plans / seconds)
    figures = {f"plans/s with {jobs}": rate for jobs, rate in rates.items()}
    assert tell(
        Ratio("replay of eight records, two jobs", rates[2] / rates[1], "one job", 1.6, figures=figures)
    ).holds
