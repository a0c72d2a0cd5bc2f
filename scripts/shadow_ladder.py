"""`make shadow`: both L2 workloads back to back on one live worker, A/A and with the KV slice cut out.

The worker as it was before its slices, first against itself, then against a copy out of which `migrate port kv --cut`
has cut what the KV code decides. Integers are compared at every step, content of KV and logits at every 64th; the
reports say so. Ends with 1 unless both are equal and every level reached its caps.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from rich.table import Table

from pipeline.copies import copy_before

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "out" / "shadow"
BIN = Path(sys.executable).parent
console = Console()


class LadderError(RuntimeError):
    pass


def run(*command: str) -> int:
    console.print(f"[dim]$ {' '.join(command).replace(f'{ROOT}/', '')}[/dim]")
    sys.stdout.flush()
    return subprocess.run([str(BIN / command[0]), *command[1:]], cwd=ROOT, check=False).returncode


def can_html() -> bool:
    done = subprocess.run([str(BIN / "shadow"), "compare", "--help"], capture_output=True, text=True)
    return "--html" in done.stdout


def compared(name: str, legacy: Path, candidate: Path, arguments: argparse.Namespace) -> tuple[int, float]:
    """(exit code, seconds) of one comparison; its reports are `name`.* in out/shadow."""
    command = [
        *("shadow", "compare", "--legacy", str(legacy), "--candidate", str(candidate)),
        *("--workload", arguments.workload, "--model", arguments.model, "--page-size", "16"),
        *("--content-every", str(arguments.content_every), "--timeout", "900"),
        *("--max-batch", "128", "--json", str(OUT / f"{name}.json")),
    ]
    if arguments.scale:
        command += ["--scale", arguments.scale]
    if arguments.gpu_pages:
        command += ["--gpu-pages", arguments.gpu_pages, "--host-pages", arguments.host_pages]
    if can_html():
        command += ["--html", str(OUT / f"{name}.html")]
    started = time.monotonic()
    return run(*command), time.monotonic() - started


def summary(rows: list[tuple[str, int, float]]) -> None:
    table = Table(title="The ladder", title_justify="left")
    for column in ("comparison", "exit code", "minutes", "what it says"):
        table.add_column(column)
    for name, code, seconds in rows:
        path = OUT / f"{name}.json"
        said = (
            json.loads(path.read_text())["report"]["verdict"]["headline"] if path.is_file() else "no report"
        )
        table.add_row(name, str(code), f"{seconds / 60:.1f}", said)
    console.print(table)
    console.print(f"Reports: {OUT.relative_to(ROOT)}/")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--workload", default="L2-2048,L2-4096")
    parser.add_argument("--scale", default="", help="caps/16,prompts/4 for smollm2 on a small machine")
    parser.add_argument("--content-every", type=int, default=64)
    # Three quarters of what all rows need at their longest: some go on hold and come back.
    parser.add_argument("--gpu-pages", default="25000", help="empty: room for everybody")
    parser.add_argument("--host-pages", default="36000")
    arguments = parser.parse_args()
    shutil.rmtree(OUT / "trees", ignore_errors=True)
    OUT.mkdir(parents=True, exist_ok=True)
    original, cut = (copy_before(ROOT, OUT / "trees" / name) for name in ("original", "cut"))
    if run("migrate", "port", "kv", "--cut", "--repo", str(cut)):
        raise LadderError("the KV section could not be cut out")
    rows = []
    for name, title, candidate in (
        ("same", "the worker against itself: nothing may differ", original),
        ("cut", "the worker against the one whose KV section is cut out: nothing may differ", cut),
    ):
        console.print(Rule(title, align="left"))
        (OUT / f"{name}.json").unlink(missing_ok=True)
        rows.append((name, *compared(name, original, candidate, arguments)))
    summary(rows)
    return 1 if any(code for _, code, _ in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LadderError as error:
        console.print(f"[bold red]shadow ladder failed:[/bold red] {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
