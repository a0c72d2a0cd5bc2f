"""`shadow compare`."""

from __future__ import annotations

import argparse
import time
from typing import Any

from reports.model import Fact
from shadow.commands import options


def add_parser(commands: Any) -> None:
    compare = commands.add_parser(
        "compare",
        help="two source trees, same requests, step by step",
        description="Runs the worker of two source trees in lockstep on the same requests and compares, step "
        "by step: logits, tokens, page tables, KV content, boundary decisions, sequence fields, results.",
    )
    compare.add_argument("--legacy", required=True, type=options.tree, metavar="TREE", help="holds batchgen/")
    compare.add_argument(
        "--candidate", required=True, type=options.tree, metavar="TREE", help="holds batchgen/"
    )
    compare.add_argument(
        "--requests", required=True, type=options.file, metavar="FILE", help="OpenAI batch format"
    )
    options.add_engine_options(compare)
    options.add_run_options(compare)
    options.add_report_options(compare)
    compare.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from shadow.commands.deliver import deliver
    from shadow.compare import compare_trees
    from shadow.verdict import Exit

    engine = options.engine_options(arguments)
    started = time.monotonic()
    with Console(stderr=True).status("starting both sides …") as status:

        def on_step(step: int, differing: int) -> None:
            rate = (step + 1) / (time.monotonic() - started)
            found = f"{differing:,} values differ" if differing else "all equal so far"
            status.update(f"decode step {step} ({rate:.1f}/s), {found}")

        report = compare_trees(
            arguments.legacy,
            arguments.candidate,
            arguments.requests,
            engine,
            threads=options.threads(arguments),
            timeout=arguments.timeout,
            on_step=on_step,
            facts=tuple(Fact(name, str(value)) for name, value in engine.items()),
        )
    failed = report.verdict.exit_code == Exit.HARNESS
    return deliver(report, arguments, first="What went wrong" if failed else "First divergence")
