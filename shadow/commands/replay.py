"""`shadow replay`."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadow.commands import options

if TYPE_CHECKING:
    from reports import Report


def add_parser(commands: Any) -> None:
    replay = commands.add_parser(
        "replay",
        help="plan a record's steps again, with no engine and no GPU, and compare",
        description="Plans every recorded step again from its recorded inputs and compares the plan with the "
        "recorded one: the pages that each decode step reads and writes; with --tree, what rank 0 of that tree "
        "decides at each page boundary, or what the planners of its step policy answer.",
    )
    replay.add_argument("record", type=options.file, metavar="RECORD")
    replay.add_argument(
        "--tree",
        metavar="TREE",
        help="whose boundary planner, or step policy, to replay: a folder that holds batchgen/, a worker file, "
        "a git revision",
    )
    replay.add_argument(
        "--planners",
        type=options.file,
        metavar="FILE",
        help="Python file with more planners (docs/record.md)",
    )
    options.add_report_options(replay)
    replay.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from shadow.commands.deliver import deliver
    from shadow.trees import TreeError, source_tree
    from shadow.verdict import Exit

    try:
        with nullcontext() if arguments.tree is None else source_tree(arguments.tree) as tree:
            report = _replayed(arguments, tree)
    except TreeError as error:
        print(f"shadow replay: {error}", file=sys.stderr)
        return int(Exit.USAGE)
    failed = report.verdict.exit_code == Exit.HARNESS
    return deliver(report, arguments, first="What went wrong" if failed else "First divergence")


def _replayed(arguments: argparse.Namespace, tree: Path | None) -> Report:
    from shadow.record.format import RecordError
    from shadow.record.reader import open_record
    from shadow.record.replay import replay_record
    from shadow.record.replays import replays_of
    from shadow.record.report import replay_report, trouble_report
    from shadow.tally import Tally

    started = time.monotonic()
    tally = Tally()
    try:
        record = open_record(arguments.record)
        replays, sources = replays_of(record, tree, arguments.planners)
        sources |= {name: arguments.tree for name, source in sources.items() if source == str(tree)}
        tally.required = frozenset(replay.kind for replay in replays.values())
        plans = replay_record(record, replays, tally)
        return replay_report(record, tally, plans, sources, time.monotonic() - started)
    except RecordError as error:
        return trouble_report("shadow replay", str(error), time.monotonic() - started)
