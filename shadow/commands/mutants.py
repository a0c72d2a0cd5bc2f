"""`shadow mutants`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from shadow.commands import options

EXAMPLES = """examples:
  shadow mutants
  shadow mutants --only padding-slot-wraps-to-last-page
  shadow mutants --mutants examples/my_mutants.py --no-catalogue
  shadow mutants --list

Exit codes: 0 every mutant found as declared and in time, no control alarmed; 1 one was not, or did not strike, or
an invariant kills none alone; 2 the harness failed; 3 nothing was run; 64 usage.
"""


def add_parser(commands: Any) -> None:
    mutants = commands.add_parser(
        "mutants",
        help="plants known bugs and requires each to be found",
        description="Plants real bugs from public reports in the worker, one at a time, and requires the comparison "
        "to find each: in the declared field, sequence, layer and step. See docs/mutants.md.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    mutants.add_argument(
        "--tree", default=".", metavar="TREE", help="folder that holds batchgen/ (default: .)"
    )
    mutants.add_argument(
        "--mutants",
        action="append",
        default=[],
        metavar="FILE",
        help="more mutants, from a Python file; repeatable",
    )
    mutants.add_argument("--no-catalogue", action="store_true", help="run those of --mutants only")
    mutants.add_argument("--only", nargs="+", default=[], metavar="NAME", help="run these only")
    mutants.add_argument("--list", action="store_true", help="say what there is, run nothing")
    mutants.add_argument(
        "--at-once",
        type=options.positive,
        default=2,
        metavar="N",
        help="mutants tried at a time (default: 2)",
    )
    mutants.add_argument(
        "--timeout",
        type=options.positive,
        default=60,
        metavar="S",
        help="seconds without a step (start: tenfold)",
    )
    mutants.add_argument("--json", type=Path, metavar="FILE", help="also write the report as JSON")
    mutants.add_argument("--junit", type=Path, metavar="FILE", help="also write it as JUnit XML")
    mutants.add_argument(
        "--markdown",
        type=Path,
        nargs="?",
        const=Path("-"),
        metavar="FILE",
        help="also write it as Markdown (with --list: the table, on the terminal)",
    )
    mutants.add_argument("--html", type=Path, metavar="FILE", help="also write it as one HTML file")
    mutants.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from shadow.mutants.registry import MutantError
    from shadow.mutants.run import collect
    from shadow.trees import TreeError, source_tree
    from shadow.verdict import Exit

    if arguments.no_catalogue and not arguments.mutants:
        print("shadow mutants: --no-catalogue leaves nothing without --mutants FILE", file=sys.stderr)
        return int(Exit.USAGE)
    if arguments.markdown == Path("-") and not arguments.list:
        print("shadow mutants: --markdown needs a FILE, except with --list", file=sys.stderr)
        return int(Exit.USAGE)
    try:
        mutants = collect(arguments.mutants, arguments.only, catalogue=not arguments.no_catalogue)
        if arguments.list:
            return _list(mutants, arguments.markdown)
        with source_tree(arguments.tree) as tree:
            return _run(arguments, mutants, tree)
    except (MutantError, TreeError) as error:
        print(f"shadow mutants: {error}", file=sys.stderr)
        return int(Exit.USAGE)


def _list(mutants: list[Any], markdown: Path | None) -> int:
    from shadow.mutants.listing import as_markdown, as_text

    text = as_text(mutants) if markdown is None else as_markdown(mutants)
    if markdown is None or markdown == Path("-"):
        sys.stdout.write(text)
    else:
        markdown.write_text(text)
    return 0


def _run(arguments: argparse.Namespace, mutants: list[Any], tree: Path) -> int:
    from rich.console import Console

    from shadow.commands.deliver import deliver
    from shadow.mutants.report import build_report
    from shadow.mutants.run import try_all
    from shadow.mutants.trial import GOOD, Trial

    started = time.monotonic()
    console = Console(stderr=True)
    done: list[Trial] = []
    with console.status(f"0 of {len(mutants)} mutants …") as status:

        def on_trial(trial: Trial) -> None:
            done.append(trial)
            if trial.verdict not in GOOD:
                console.print(f"{trial.mutant.name}: {trial.verdict.value}; {trial.detail}", markup=False)
            elif not console.is_terminal and len(done) % 10 == 0:
                console.print(f"{len(done)} of {len(mutants)} mutants")
            bad = sum(each.verdict not in GOOD for each in done)
            said = f", {bad} not as they should" if bad else ""
            status.update(f"{len(done)} of {len(mutants)} mutants{said}, the last was {trial.mutant.name}")

        trials = try_all(
            mutants, tree, on_trial=on_trial, at_once=arguments.at_once, timeout=float(arguments.timeout)
        )
    whole = not arguments.only and not arguments.no_catalogue
    report = build_report(trials, whole=whole, seconds=time.monotonic() - started)
    return deliver(report, arguments)
