"""`shadow shrink`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadow.commands import options
from shadow.commands.sides import add_side_options, setups

if TYPE_CHECKING:
    from shadow.shrink import Shrunk

EXAMPLES = """examples:
  shadow shrink --legacy HEAD --candidate . --requests requests.jsonl --model tiny -o test_shrunk.py
  shadow shrink --legacy . --candidate . --mutant NAME --requests requests.jsonl --model tiny
"""


def add_parser(commands: Any) -> None:
    shrink = commands.add_parser(
        "shrink",
        help="the smallest run that still diverges, as a pytest file",
        description="Takes a run that diverges and makes it smaller while it diverges in the same way: fewer "
        "requests, shorter ones, a smaller batch, fewer pages. Ends in a pytest file that was seen three times "
        "to fail on the candidate and to pass on the legacy.",
        epilog=EXAMPLES + "\nExit codes: 0 the file was written; 1 both sides are equal, there is nothing to "
        "shrink; 2 the harness failed, or the result could not be reproduced; 64 usage.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_side_options(shrink)
    shrink.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the pytest file (default: standard output)"
    )
    shrink.add_argument(
        "--seconds", type=options.positive, default=90, metavar="S", help="for making it smaller (default 90)"
    )
    shrink.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from shadow.messages import HarnessError
    from shadow.shrink import NotReproducedError, ScenarioError
    from shadow.trees import TreeError, source_tree
    from shadow.verdict import Exit

    try:
        with source_tree(arguments.legacy) as legacy, source_tree(arguments.candidate) as candidate:
            return _shrink(arguments, legacy, candidate)
    except (TreeError, ScenarioError) as error:
        print(f"shadow shrink: {error}", file=sys.stderr)
        return int(Exit.USAGE)
    except (HarnessError, NotReproducedError) as error:
        print(f"shadow shrink: {error}", file=sys.stderr)
        return int(Exit.HARNESS)


def _shrink(arguments: argparse.Namespace, legacy: Path, candidate: Path) -> int:
    from rich.console import Console

    from reports import ReportWriteError, write_report
    from shadow.shrink import Replay, read_scenario, shrink, verified_script
    from shadow.verdict import Exit

    control, subject = setups(arguments, legacy, candidate)
    scenario = read_scenario(arguments.requests, control.options)
    console = Console(stderr=True)
    with console.status("running it as it is …") as status:
        replay = Replay(
            control,
            subject,
            timeout=arguments.timeout,
            on_run=lambda runs: status.update(f"run {runs}: smaller and smaller …"),
        )
        shrunk = shrink(scenario, replay, seconds=arguments.seconds)
        if shrunk is None:
            print("shadow shrink: both sides are equal on these requests; nothing to shrink", file=sys.stderr)
            return int(Exit.DIVERGENCE)
        status.update("three times on the candidate, three times on the legacy …")
        text = verified_script(shrunk, scenario.size, control, subject)
    print(_said(shrunk, scenario.size), file=sys.stderr)
    if arguments.output is None:
        print(text, end="")
        return int(Exit.EQUAL)
    try:
        write_report(arguments.output, text)
    except ReportWriteError as error:
        print(f"shadow shrink: {error}", file=sys.stderr)
        return int(Exit.HARNESS)
    print(f"written to {arguments.output}; run it with pytest", file=sys.stderr)
    return int(Exit.EQUAL)


def _said(shrunk: Shrunk, requests_before: int) -> str:
    ended = "nothing can be left out" if shrunk.complete else "time ran out: --seconds gives it more"
    return (
        f"{shrunk.found.signature.kind.value} differs at {shrunk.found.where}\n"
        f"events {shrunk.before.events} -> {shrunk.found.events}, "
        f"requests {requests_before} -> {shrunk.scenario.size}, {shrunk.runs} runs; {ended}"
    )
