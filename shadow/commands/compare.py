"""`shadow compare`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.model import Fact
from shadow.commands import options
from shadow.commands.judged import add_noise_options, judged
from shadow.commands.ranks import add_rank_options, check_rank_options
from shadow.commands.sides import add_side_options, setups
from shadow.commands.submitted import Submitted, add_workload_options, submitted

if TYPE_CHECKING:
    from shadow.diff import Mismatch

EXAMPLES = """examples:
  shadow compare --legacy . --candidate ../ported --requests requests.jsonl --model tiny --page-size 16
  shadow compare --legacy HEAD~1 --requests requests.jsonl
  shadow compare --model smollm2 --steps 64 --page-size 16
  shadow compare --candidate ../ported --model tiny --page-size 16 --workload L2-2048,L2-4096 --content-every 64
  shadow compare --candidate ../ported --workload boundaries
  shadow compare --candidate ../ported --model tiny --page-size 16 --pairing threads --noise noise.json
  shadow compare --legacy . --candidate . --candidate-env BATCHGEN_WORKER_KV_NATIVE=1 --requests requests.jsonl
  shadow compare --ranks 2 --candidate ../ported --model tiny --page-size 16 --steps 64
"""


def add_parser(commands: Any) -> None:
    compare = commands.add_parser(
        "compare",
        help="two workers, same requests, step by step",
        description="Runs two workers in lockstep on the same requests and compares, step by step: logits, "
        "tokens, page tables, KV content, boundary decisions, sequence fields, invariants, results.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_side_options(compare, requests_required=False)
    add_workload_options(compare)
    compare.add_argument(
        "--graft",
        action="store_true",
        help="where logits differ, run again with one of the legacy's inputs at a time to name the guilty one",
    )
    add_noise_options(compare)
    compare.add_argument(
        "--canary",
        type=options.positive,
        default=64,
        metavar="M",
        help="steps between two self-tests of the comparison by injected faults (default: 64)",
    )
    add_rank_options(compare)
    options.add_report_options(compare)
    compare.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    check_rank_options(arguments)
    from shadow.noise import NoiseFileError
    from shadow.trees import TreeError, source_tree
    from shadow.verdict import Exit
    from shadow.workloads import WorkloadError

    try:
        with (
            source_tree(arguments.legacy) as legacy,
            source_tree(arguments.candidate) as candidate,
            submitted(arguments) as work,
        ):
            return _compare(arguments, legacy, candidate, work)
    except (TreeError, WorkloadError, NoiseFileError) as error:
        print(f"shadow compare: {error}", file=sys.stderr)
        return int(Exit.USAGE)


def _compare(arguments: argparse.Namespace, legacy: Path, candidate: Path, work: Submitted) -> int:
    from rich.console import Console
    from rich.text import Text

    from reports.text import visible
    from shadow.commands.deliver import deliver
    from shadow.commands.ranks import comparer
    from shadow.verdict import Exit, where

    sides = judged(arguments, *map(work.setup, setups(arguments, legacy, candidate)))
    started, first = time.monotonic(), ""
    with Console(stderr=True).status("starting both sides …") as status:

        def on_step(step: int, differing: int) -> None:
            rate = (step + 1) / (time.monotonic() - started)
            found = f"{differing:,} values differ, the first at {first}" if first else "all equal so far"
            status.update(Text(visible(f"decode step {step} ({rate:.1f}/s), {found}")))

        def on_first(mismatch: Mismatch) -> None:
            nonlocal first
            first = where(mismatch)

        report = comparer(arguments)(
            sides.control,
            sides.candidate,
            pairing=sides.pairing,
            review=sides.review,
            band=sides.band,
            timeout=arguments.timeout,
            on_step=on_step,
            on_first=on_first,
            watch=lambda control, candidate: work.see(control),
            names=(arguments.legacy, arguments.candidate),
            strict_hygiene=arguments.strict_hygiene,
            canary_every=arguments.canary,
            facts=(*(Fact(name, str(value)) for name, value in sides.control.options.items()), *work.facts()),
        )
    report = sides.report(work.judged(report))
    failed = report.verdict.exit_code == Exit.HARNESS
    return deliver(report, arguments, first="What went wrong" if failed else "First divergence")
