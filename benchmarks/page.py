"""The ratios of the last `make bench` beside those of the committed baseline: `python -m benchmarks.page`.

A table on the terminal, `report.json` and `index.html` in out/bench/. Exit code 1 where a bar does not hold, 3 where
there is nothing to show. `--save` makes the last run the baseline; what misses its bar is none.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import jinja2
from rich.console import Console
from rich.table import Table

from benchmarks.ratios import FOUND, Ratio, read, shown

BASELINE = Path(__file__).with_name("baseline.json")
TEMPLATE = "page.html.jinja"
SLACK = 1.25  # two runs on one machine differ by as much: less is no news


@dataclass(frozen=True)
class Row:
    """One ratio and what it was. `change`: times better than the baseline (below 1: worse); None where it is new."""

    ratio: Ratio
    before: float | None

    @property
    def change(self) -> float | None:
        if not self.before or not self.ratio.value:
            return None
        grown = self.ratio.value / self.before
        return grown if self.ratio.at_least else 1 / grown

    @property
    def verdict(self) -> str:
        """ "missed", "worse", "better", "new" or "same"."""
        if not self.ratio.holds:
            return "missed"
        if self.before is None:
            return "new"
        if self.change is None or 1 / SLACK <= self.change <= SLACK:
            return "same"
        return "better" if self.change > 1 else "worse"


def rows_of(ratios: Sequence[Ratio], baseline: Mapping[str, float]) -> list[Row]:
    return [Row(ratio, baseline.get(ratio.name)) for ratio in ratios]


def gone(ratios: Sequence[Ratio], baseline: Mapping[str, float]) -> list[str]:
    """What the baseline has and this run has not: a benchmark that did not run is no benchmark that held."""
    return sorted(baseline.keys() - {ratio.name for ratio in ratios})


def machine() -> dict[str, str | int]:
    return {
        "cores": os.cpu_count() or 0,
        "processor": platform.machine(),
        "python": platform.python_version(),
    }


def as_json(rows: Sequence[Row], missing: Sequence[str]) -> dict[str, object]:
    return {
        "schema": 1,
        "machine": machine(),
        "missing": list(missing),
        "ratios": [
            {
                **asdict(r.ratio),
                "holds": r.ratio.holds,
                "baseline": r.before,
                "change": r.change,
                "verdict": r.verdict,
            }
            for r in rows
        ],
    }


def as_html(rows: Sequence[Row], missing: Sequence[str]) -> str:
    """Self-contained, light and dark, readable on a phone."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    told = {"rows": rows, "missing": missing, "machine": machine(), "shown": shown}
    return environment.get_template(TEMPLATE).render(told)


def show(rows: Sequence[Row], missing: Sequence[str], console: Console) -> None:
    table = Table(title="Ratios of this run", title_justify="left")
    for column in ("", "value", "against", "bar", "baseline", "change", ""):
        table.add_column(column)
    colours = {"missed": "bold red", "worse": "yellow", "better": "green"}
    for row in rows:
        ratio, before = row.ratio, row.before
        table.add_row(
            ratio.name,
            shown(ratio.value, ratio.unit),
            ratio.against,
            ratio.limit,
            "-" if before is None else shown(before, ratio.unit),
            "-" if row.change is None else f"{row.change:.2f}x",
            row.verdict,
            style=colours.get(row.verdict),
        )
    console.print(table)
    for name in missing:
        console.print(f"[yellow]not measured in this run, but in the baseline: {name}[/yellow]")


def baseline_of(file: Path) -> dict[str, float]:
    """By name; empty where there is none yet."""
    if not file.is_file():
        return {}
    ratios: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))["ratios"]
    return ratios


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument(
        "--found", type=Path, default=FOUND, help="the ratios (default: out/bench/ratios.jsonl)"
    )
    parser.add_argument("--baseline", type=Path, default=BASELINE, help="default: benchmarks/baseline.json")
    parser.add_argument("--save", action="store_true", help="make this run the baseline")
    chosen = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    try:
        ratios = read(chosen.found) if chosen.found.is_file() else []
    except ValueError as error:
        console.print(str(error), style="bold red", markup=False)
        return 2
    if not ratios:
        console.print(f"no ratio in {chosen.found}: run `make bench` first", markup=False)
        return 3
    if chosen.save:
        kept = {"machine": machine(), "ratios": {r.name: round(r.value, 4) for r in ratios if r.holds}}
        chosen.baseline.write_text(json.dumps(kept, indent="\t", sort_keys=True) + "\n", encoding="utf-8")
    baseline = baseline_of(chosen.baseline)
    rows, missing = rows_of(ratios, baseline), gone(ratios, baseline)
    folder = chosen.found.parent
    (folder / "report.json").write_text(json.dumps(as_json(rows, missing), indent=2) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(as_html(rows, missing), encoding="utf-8")
    show(rows, missing, console)
    console.print(f"Reports: {folder / 'report.json'}, {folder / 'index.html'}", markup=False)
    return int(any(not row.ratio.holds for row in rows))


if __name__ == "__main__":
    sys.exit(main())
