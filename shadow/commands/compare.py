"""`shadow compare`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from reports.model import Fact
from shadow.commands import options

EXAMPLES = """examples:
  shadow compare --legacy . --candidate ../ported --requests requests.jsonl --model tiny --page-size 16
  shadow compare --legacy HEAD~1 --candidate . --requests requests.jsonl
  shadow compare --legacy . --candidate . --candidate-env BATCHGEN_WORKER_KV_NATIVE=1 --requests requests.jsonl
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
    named = "a folder that holds batchgen/, a worker file, or a git revision"
    compare.add_argument("--legacy", required=True, metavar="TREE", help=named)
    compare.add_argument("--candidate", required=True, metavar="TREE", help=named)
    compare.add_argument(
        "--requests",
        required=True,
        type=options.file,
        nargs="+",
        metavar="FILE",
        help="OpenAI batch format; several run back to back on the same live workers",
    )
    for side in ("legacy", "candidate"):
        compare.add_argument(
            f"--{side}-env",
            type=options.assignment,
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help=f"environment of the {side} side (a gate's mode, say); repeatable",
        )
    compare.add_argument(
        "--mutant", metavar="NAME", help="plant this fault in the candidate (see `shadow mutants --list`)"
    )
    compare.add_argument(
        "--mutants", metavar="FILE", help="where --mutant is defined (default: the catalogue)"
    )
    compare.add_argument("--structural", action="store_true", help="integers only: no KV content, no logits")
    options.add_engine_options(compare)
    options.add_run_options(compare)
    options.add_report_options(compare)
    compare.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from shadow.trees import TreeError, source_tree
    from shadow.verdict import Exit

    try:
        with source_tree(arguments.legacy) as legacy, source_tree(arguments.candidate) as candidate:
            return _compare(arguments, legacy, candidate)
    except TreeError as error:
        print(f"shadow compare: {error}", file=sys.stderr)
        return int(Exit.USAGE)


def _compare(arguments: argparse.Namespace, legacy: Path, candidate: Path) -> int:
    from rich.console import Console

    from shadow.commands.deliver import deliver
    from shadow.compare import compare_and_report
    from shadow.messages import Setup
    from shadow.mutants.registry import CATALOGUE
    from shadow.verdict import Exit

    engine = options.engine_options(arguments)
    batches = tuple(map(str, arguments.requests))
    threads = options.threads(arguments)
    mutant = (arguments.mutants or CATALOGUE, arguments.mutant) if arguments.mutant else None
    control, subject = (
        Setup(
            str(tree),
            batches,
            threads,
            engine,
            dict(environment),
            mutant=mutant if tree is candidate else None,
            structural=arguments.structural,
        )
        for tree, environment in ((legacy, arguments.legacy_env), (candidate, arguments.candidate_env))
    )
    started = time.monotonic()
    with Console(stderr=True).status("starting both sides …") as status:

        def on_step(step: int, differing: int) -> None:
            rate = (step + 1) / (time.monotonic() - started)
            found = f"{differing:,} values differ" if differing else "all equal so far"
            status.update(f"decode step {step} ({rate:.1f}/s), {found}")

        report = compare_and_report(
            control,
            subject,
            timeout=arguments.timeout,
            on_step=on_step,
            names=(arguments.legacy, arguments.candidate),
            facts=tuple(Fact(name, str(value)) for name, value in engine.items()),
        )
    failed = report.verdict.exit_code == Exit.HARNESS
    return deliver(report, arguments, first="What went wrong" if failed else "First divergence")
