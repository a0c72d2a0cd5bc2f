"""`shadow graphs`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadow.commands import options
from shadow.commands.submitted import Submitted, add_workload_options, submitted

if TYPE_CHECKING:
    from shadow.messages import Setup
    from shadow.noise.judging import Judge

EXAMPLES = """examples:
  shadow graphs --requests requests.jsonl --model tiny --page-size 16
  shadow graphs --requests requests.jsonl --device cuda --noise noise.json
  shadow graphs --model tiny --page-size 16 --workload L2-2048 --scale caps/64,prompts/16

The bounds of --noise are those of `shadow noise --class bucket`.
"""


def add_parser(commands: Any) -> None:
    graphs = commands.add_parser(
        "graphs",
        help="replays of captured decode steps against eager runs, in one worker",
        description="Runs one worker and each decode step that it replays again, eagerly, on the same inputs; "
        "compares logits and new KV where they are. On a GPU one kernel compares and is read a step late: comparing "
        "makes the host wait for nothing.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    graphs.add_argument("--tree", default=".", metavar="TREE", help="as for compare (default: this folder)")
    graphs.add_argument(
        "--requests",
        default=(),
        type=options.file,
        nargs="+",
        metavar="FILE",
        help="OpenAI batch format; several run back to back on the same live worker",
    )
    add_workload_options(graphs)
    graphs.add_argument(
        "--noise",
        type=Path,
        metavar="FILE",
        help="judge numbers by the bounds that `shadow noise` measured (default: bit by bit)",
    )
    options.add_engine_options(graphs)
    graphs.add_argument("--threads", type=options.positive, metavar="N", help="default: half the cores")
    options.add_report_options(graphs)
    graphs.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from shadow.noise import NoiseFileError
    from shadow.trees import TreeError, source_tree
    from shadow.verdict import Exit
    from shadow.workloads import WorkloadError

    try:
        with source_tree(arguments.tree) as tree, submitted(arguments) as work:
            return _compared(arguments, tree, work)
    except (TreeError, WorkloadError, NoiseFileError) as error:
        print(f"shadow graphs: {error}", file=sys.stderr)
        return int(Exit.USAGE)


def _compared(arguments: argparse.Namespace, tree: Path, work: Submitted) -> int:
    from rich.console import Console

    from reports.model import Fact
    from shadow.commands.deliver import deliver
    from shadow.graphs.compare import compare_replays
    from shadow.graphs.messages import Task
    from shadow.messages import Setup
    from shadow.verdict import Exit

    setup = work.setup(
        Setup(str(tree), (), options.threads(arguments), options.engine_options(arguments)),
    )
    started = time.monotonic()
    with Console(stderr=True).status("starting the worker …") as status:

        def on_step(step: int, differing: int) -> None:
            rate = (step + 1) / (time.monotonic() - started)
            found = f"{differing:,} values differ" if differing else "all equal so far"
            status.update(f"decode step {step} ({rate:.1f}/s), {found}")

        report = compare_replays(
            Task(
                setup.tree,
                setup.batches,
                setup.threads,
                dict(setup.options),
                every=setup.content_every,
                max_steps=setup.max_steps,
            ),
            environment=setup.environment,
            judge=_judge(arguments, setup),
            source=str(arguments.noise),
            name=arguments.tree,
            facts=(*(Fact(name, str(value)) for name, value in setup.options.items()), *work.facts()),
            on_step=on_step,
        )
    failed = report.verdict.exit_code == Exit.HARNESS
    return deliver(report, arguments, first="What went wrong" if failed else "First divergence")


def _judge(arguments: argparse.Namespace, setup: Setup) -> Judge | None:
    """NoiseFileError where --noise names a file that cannot be used for this run."""
    if arguments.noise is None:
        return None
    from shadow.noise import Class
    from shadow.noise.judging import judge_from

    return judge_from(arguments.noise, Class.BUCKET, setup)
