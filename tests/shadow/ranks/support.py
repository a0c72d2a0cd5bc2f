"""Starts `shadow compare --ranks 2` on the `tiny` model, as users do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from reports import Report, from_json

ROOT = Path(__file__).parents[3]
MUTANTS = Path(__file__).parent / "mutants.py"
ENGINE = ("--page-size", "4", "--gpu-pages", "24", "--host-pages", "60", "--max-batch", "4", "--threads", "1")


def write_requests(path: Path, count: int = 6, max_tokens: int = 12) -> Path:
    """Greedy and sampled ones, that end at their cap at the latest."""
    lines = []
    for i in range(count):
        body = {"prompt": f"request {i}: " + "ab" * (i * 5 % 23), "max_tokens": max_tokens, "seed": i}
        body |= {"temperature": 0 if i % 3 else 0.8, "ignore_eos": True}
        lines.append({"custom_id": f"m{i}", "method": "POST", "url": "/v1/completions", "body": body})
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def command(requests: Path, report: Path, *arguments: str, model: str = "tiny") -> list[str]:
    asked = ["--ranks", "2", "--requests", str(requests), "--model", model, *ENGINE, "--json", str(report)]
    return [sys.executable, "-m", "shadow.cli", "compare", *asked, *arguments]


def environment(per_node: int = 8) -> dict[str, str]:
    return {**os.environ, "NUM_GPUS_PER_NODE": str(per_node), "COLUMNS": "200"}


def compare(
    folder: Path, *arguments: str, model: str = "tiny", per_node: int = 8, requests: Path | None = None
) -> tuple[int, Report, str]:
    """(exit code, the report, what the terminal shows), run where the tree is: both sides are this folder."""
    report = folder / "report.json"
    asked = command(requests or write_requests(folder / "requests.jsonl"), report, *arguments, model=model)
    done = subprocess.run(
        asked, cwd=ROOT, env=environment(per_node), capture_output=True, text=True, timeout=580
    )
    assert report.is_file(), done.stdout + done.stderr
    return done.returncode, from_json(report.read_text()), done.stdout


def table(report: Report, title: str) -> dict[str, dict[str, str]]:
    """By the first cell of a row, its other cells by column."""
    (found,) = [table for table in report.tables if table.title == title]
    return {row[0]: dict(zip(found.columns[1:], row[1:], strict=True)) for row in found.rows}


def where(report: Report) -> dict[str, str]:
    """Coordinates of the first finding."""
    return {fact.name: fact.value for fact in report.findings[0].where}
