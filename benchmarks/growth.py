"""How time grows with size: porting with the lines of a worker, comparing with its batch, replaying with plans.

    python -m benchmarks.growth            all sizes (some minutes), bars judged
    python -m benchmarks.growth --quick    small sizes, for a small machine; no bar is judged

A table on the terminal and `out/bench/growth.json`. Each bar is a ratio within this run: processor time a unit at the
largest size against that at the middle one. Exit code 1 where a bar does not hold.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from timeit import Timer
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.decode_stream import BATCH, EVERY, ROOT, Decode, record
from benchmarks.monolith import PORT_TEN, write_project
from benchmarks.ratios import FOUND, Ratio, tell
from shadow.diff import compare_events
from shadow.observation import Event
from shadow.pairing import SAME
from shadow.record.reader import open_record
from shadow.record.replay import replay_record
from shadow.record.replays import replays_of
from shadow.tally import Tally

OUTPUT = FOUND.with_name("growth.json")
LINEAR = 1.5
PORT_LINES = (2_000, 7_000, 40_000)
PORT_BAR = 7 * 7_000 / 40_000
"""40,000 lines in at most 7 times what 7,000 take, as time a line."""


@dataclass(frozen=True)
class Sizes:
    """What is measured at, ascending: the largest is judged against the middle. `rounds`: the best counts."""

    lines: tuple[int, ...]
    batches: tuple[int, ...]
    plans: tuple[int, ...]
    rounds: int


FULL = Sizes(PORT_LINES, (1, 4, 16, 64, 256), (1_000, 10_000, 32_000, 100_000, 1_000_000), 3)
QUICK = Sizes((2_000, 2_500, 3_000), (1, 2, 4), (1_000, 2_000, 4_000), 1)


@dataclass(frozen=True)
class Curve:
    """`seconds` of the processor by size, in what `unit` says. `bar`: of `ratio`."""

    name: str
    unit: str
    seconds: dict[int, float]
    bar: float

    @property
    def middle(self) -> int:
        sizes = sorted(self.seconds)
        return sizes[len(sizes) // 2]

    @property
    def ratio(self) -> float:
        """Time a unit at the largest size against the middle one: 1 is linear, less is better."""
        largest = max(self.seconds)
        return (self.seconds[largest] / largest) / (self.seconds[self.middle] / self.middle)

    def as_json(self) -> dict[str, Any]:
        points = [
            {"size": size, "seconds": seconds, "microseconds_a_unit": 1e6 * seconds / size}
            for size, seconds in self.seconds.items()
        ]
        shape = {"middle": self.middle, "ratio": self.ratio, "bar": self.bar, "holds": self.ratio <= self.bar}
        return {"name": self.name, "unit": self.unit, "points": points, **shape}


def port_seconds(lines: int, folder: Path, rounds: int) -> float:
    """`migrate port` of ten methods in memory, as a whole process."""
    write_project(folder, lines)
    command = [sys.executable, "-c", "from migration.cli import main; main()", *PORT_TEN]

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    times = []
    for _ in range(rounds):
        before = spent()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        times.append(spent() - before)
        assert done.returncode == 1 and "would move 10 methods" in done.stdout, done.stdout + done.stderr
    return min(times)


def compare_seconds(batch: int, rounds: int, *, differing: bool) -> float:
    """A page boundary and the step after it: inputs, decisions and plans of every row, from two runs."""
    # so many tokens that none completes
    ours, theirs = ([*Decode(tokens=1 << 14, batch=batch).events(EVERY + 1)][-2:] for _ in range(2))
    if differing:
        theirs = [_with_other_lengths(event) for event in theirs]
    pairs = list(zip(ours, theirs, strict=True))
    found = [mismatch for pair in pairs for mismatch in compare_events(*pair, SAME).mismatches]
    assert len(found) >= batch if differing else not found
    return _fastest(lambda: [compare_events(*pair, SAME) for pair in pairs], rounds)


def _with_other_lengths(event: Event) -> Event:
    values = {key: value + 1 if key.field == "kv_len" else value for key, value in event.values.items()}
    return dataclasses.replace(event, values=values)


def replay_seconds(plans: int, folder: Path, rounds: int) -> float:
    """A record of so many plans, opened and replayed through the step planner and this tree's boundary planner."""
    path = record(folder / "record", Decode(tokens=300).events(plans // BATCH))
    replays, _ = replays_of(open_record(path), ROOT)
    return _fastest(lambda: replay_record(open_record(path), replays, Tally()), rounds)


def _fastest(work: Callable[[], object], rounds: int) -> float:
    """Processor seconds of one call, the best of some rounds that are each long enough to be timed."""
    timer = Timer(work, timer=process_time)
    number, first = timer.autorange()
    return min([first, *timer.repeat(rounds - 1, number)]) / number


def measure(sizes: Sizes, step: Callable[[str], None]) -> list[Curve]:
    """All curves; `step` is told what is measured next."""
    curves = []
    plans: list[tuple[str, str, tuple[int, ...], float, Callable[[int, Path, int], float]]] = [
        ("port", "lines", sizes.lines, PORT_BAR, port_seconds),
        (
            "compare, equal",
            "rows",
            sizes.batches,
            LINEAR,
            lambda n, _, r: compare_seconds(n, r, differing=False),
        ),
        (
            "compare, all rows differ",
            "rows",
            sizes.batches,
            LINEAR,
            lambda n, _, r: compare_seconds(n, r, differing=True),
        ),
        ("replay", "plans", sizes.plans, LINEAR, replay_seconds),
    ]
    for name, unit, points, bar, timed in plans:
        seconds = {}
        for size in points:
            step(f"{name}: {size:,} {unit}")
            with tempfile.TemporaryDirectory() as folder:
                seconds[size] = timed(size, Path(folder), sizes.rounds)
        curves.append(Curve(name, unit, seconds, bar))
    return curves


def show(curves: Sequence[Curve], console: Console, *, judged: bool) -> None:
    table = Table(title="Growth, in processor time", title_justify="left")
    for column in ("", "size", "time", "a unit", "largest against middle", "bar", ""):
        table.add_column(column, justify="right" if column in ("size", "time", "a unit") else "left")
    for curve in curves:
        for size, seconds in curve.seconds.items():
            cells = [
                curve.name,
                f"{size:,} {curve.unit}",
                f"{1000 * seconds:,.2f} ms",
                f"{1e6 * seconds / size:,.2f} µs",
            ]
            if size == max(curve.seconds):
                verdict = ("holds" if curve.ratio <= curve.bar else "missed") if judged else "not judged"
                cells += [f"{curve.ratio:.2f}x of {curve.middle:,}", f"at most {curve.bar:.3g}x", verdict]
            table.add_row(*cells, end_section=size == max(curve.seconds))
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="small sizes; no bar is judged")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="default: out/bench/growth.json")
    chosen = parser.parse_args(arguments)
    sizes = QUICK if chosen.quick else FULL
    console, progress = Console(width=None if sys.stdout.isatty() else 160), Console(stderr=True)
    columns = (
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=progress, transient=True, disable=not progress.is_terminal) as bar:
        total = len(sizes.lines) + 2 * len(sizes.batches) + len(sizes.plans)
        task = bar.add_task("", total=total, completed=-1)
        curves = measure(sizes, lambda what: bar.update(task, advance=1, description=what))
    show(curves, console, judged=not chosen.quick)
    found = {"schema": "growth/1", "quick": chosen.quick, "curves": [curve.as_json() for curve in curves]}
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    chosen.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    console.print(f"Written: {chosen.output}", markup=False)
    if chosen.quick:
        return 0
    held = [_told(curve) for curve in curves]
    return int(not all(held))


def _told(curve: Curve) -> bool:
    """Whether the bar holds; the ratio goes to the page of all of them."""
    figures = {f"{size:,} {curve.unit} ms": 1000 * seconds for size, seconds in curve.seconds.items()}
    against = f"a {curve.unit.removesuffix('s')} at {curve.middle:,}"
    name = f"growth of {curve.name}, time at {max(curve.seconds):,} {curve.unit}"
    return tell(Ratio(name, curve.ratio, against, curve.bar, at_least=False, figures=figures)).holds


if __name__ == "__main__":
    sys.exit(main())
