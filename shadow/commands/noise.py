"""`shadow noise`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadow.commands import options

if TYPE_CHECKING:
    from reports import Report
    from shadow.messages import Setup
    from shadow.noise import Bound, Class
    from shadow.noise.measure import NotMeasured
    from shadow.noise.power import FaultScores

CLASSES = ("same", "batch-order", "bucket", "threads", "dtype")
EXAMPLES = """examples:
  shadow noise --requests requests.jsonl --model tiny --page-size 16 -o noise.json
  shadow noise --requests requests.jsonl --class threads --runs 9 -o noise.json
  shadow compare --requests requests.jsonl --pairing threads --noise noise.json

Exit codes: 0 written; 2 the harness failed, nothing written; 3 written, but a class could not be measured; 64 usage.
"""


def add_parser(commands: Any) -> None:
    noise = commands.add_parser(
        "noise",
        help="by how much sides that do the same differ, measured",
        description="Runs the same tree on both sides, N times for each class of what else may differ between "
        "them, and stores the bound of each kind of value: the largest score of any step, times the margin. "
        "Then damages the attention of a float64 reference in known ways, to say what the bounds cannot see.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    noise.add_argument("--tree", default=".", metavar="TREE", help="as for compare (default: this folder)")
    noise.add_argument("--requests", required=True, nargs="+", type=options.file, metavar="FILE")
    noise.add_argument(
        "--class",
        dest="classes",
        action="append",
        choices=CLASSES,
        help="what the sides differ in; repeatable (default: all of them)",
    )
    noise.add_argument("--runs", type=options.positive, default=5, metavar="N", help="a class (default 5)")
    noise.add_argument(
        "--steps", type=options.positive, metavar="N", help="end each run after N decode steps"
    )
    noise.add_argument("--margin", type=_margin, default=2.0, metavar="X", help="1 or more (default 2)")
    noise.add_argument(
        "--lengths", type=_lengths, default=(64, 256, 1024), metavar="N,...", help="contexts to damage"
    )
    noise.add_argument("--no-power", action="store_true", help="leave out what the bounds cannot see")
    noise.add_argument("-o", "--output", required=True, type=Path, metavar="FILE", help="noise.json")
    options.add_engine_options(noise)
    options.add_run_options(noise)
    options.add_report_options(noise)
    noise.set_defaults(run=run)


def _margin(text: str) -> float:
    try:
        margin = float(text)
    except ValueError:
        margin = 0.0
    if not 1 <= margin < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return margin


def _lengths(text: str) -> tuple[int, ...]:
    return tuple(sorted({options.positive(part) for part in text.split(",")}))


def run(arguments: argparse.Namespace) -> int:
    from shadow.commands.deliver import deliver
    from shadow.messages import Setup
    from shadow.noise import NoiseFileError
    from shadow.trees import TreeError, source_tree
    from shadow.verdict import Exit

    try:
        with source_tree(arguments.tree) as tree:
            control = Setup(
                str(tree),
                tuple(map(str, arguments.requests)),
                options.threads(arguments),
                options.engine_options(arguments),
                max_steps=arguments.steps,
            )
            return deliver(_measured(arguments, control), arguments, first="What went wrong")
    except TreeError as error:
        print(f"shadow noise: {error}", file=sys.stderr)
        return int(Exit.USAGE)
    except NoiseFileError as error:
        print(f"shadow noise: {error}", file=sys.stderr)
        return int(Exit.HARNESS)


def _measured(arguments: argparse.Namespace, control: Setup) -> Report:
    """Measures, saves where something was measured, and reports."""
    from rich.console import Console

    from shadow.noise import Class, NoiseFloor, save
    from shadow.noise.conditions import conditions_of
    from shadow.noise.measure import NotMeasured, measure_class
    from shadow.noise.report import noise_report

    bounds: list[Bound] = []
    failed: list[NotMeasured] = []
    with Console(stderr=True).status("measuring …") as status, tempfile.TemporaryDirectory() as folder:

        def show(pairing: Class, run: int, step: int) -> None:
            status.update(f"{pairing.value}: run {run + 1} of {arguments.runs}, decode step {step}")

        for name in arguments.classes or CLASSES:
            pairing = Class(name)
            found = measure_class(
                control,
                pairing,
                arguments.runs,
                Path(folder),
                margin=arguments.margin,
                timeout=arguments.timeout,
                on_step=lambda run, step, pairing=pairing: show(pairing, run, step),  # type: ignore[misc]
            )
            if isinstance(found, NotMeasured):
                failed.append(found)
                if found.harness and not bounds:
                    break  # no class would fare better
            else:
                bounds += found
        conditions = conditions_of(control)
        power: tuple[FaultScores, ...] = ()
        if bounds and not arguments.no_power:
            status.update("damaging the reference …")
            power = _power(conditions.model, conditions.dtype, conditions.page_size, arguments.lengths)
    floor = NoiseFloor(conditions, tuple(bounds), power)
    if bounds:
        save(arguments.output, floor)
    return noise_report(arguments.output, floor, failed)


def _power(model: str, dtype: str, page_size: int, lengths: tuple[int, ...]) -> tuple[FaultScores, ...]:
    """Empty where the model's context, or the lengths asked for, hold no three pages."""
    import torch

    from shadow.power import ladder, measure
    from shadow.reference import Reference

    torch.set_num_threads(1)  # decode rows are small: more threads only wait for each other
    reference = Reference.load(model, dtype=getattr(torch, dtype))
    return measure(reference, page_size, lengths) if ladder(reference, page_size, lengths) else ()
