"""`shadow replay`."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadow.commands import options

if TYPE_CHECKING:
    from reports import Report
    from shadow.record.fleet.engine import Engine
    from shadow.record.one import Work

_DESCRIPTION = """\
Plans every recorded step again from its recorded inputs and compares the plan
with the recorded one: the pages that each decode step reads and writes; with
--tree, what rank 0 of that tree decides at each page boundary, or what the
planners of its step policy answer.

Several records, or a folder of them, are spread over the cores and summed in
one report. A record that cannot be replayed is named, the others are done.
"""
_EXAMPLES = """\
examples:
  shadow replay run.record --tree .
  shadow replay records/ --tree my-branch --jobs 8 --json out/replay.json
  shadow replay records/ more.record --tree /shared/tree --engine ray --ray-address auto
"""
_INTERRUPTED = 130


def place(text: str) -> Path:
    path = Path(text)
    if not (path.is_file() or path.is_dir()):
        raise argparse.ArgumentTypeError(f"there is no file or folder {text}")
    return path


def add_parser(commands: Any) -> None:
    replay = commands.add_parser(
        "replay",
        help="plan the steps of records again, with no engine and no GPU, and compare",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    replay.add_argument(
        "records",
        nargs="+",
        type=place,
        metavar="RECORD",
        help="a record, or a folder: every file in it, at any depth, that ends in .record or begins as one",
    )
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
    replay.add_argument(
        "--jobs", type=options.positive, metavar="N", help="records replayed at a time (default: all cores)"
    )
    replay.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="processes of this machine, or a Ray cluster, whose machines need this package and see the records "
        "and the tree at the same paths (pip install 'batchgen-migrate[fleet]')",
    )
    replay.add_argument(
        "--ray-address",
        metavar="A",
        help="of the cluster, as ray.init takes it (default: that of RAY_ADDRESS or of this machine, or a new one)",
    )
    options.add_report_options(replay)
    replay.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from shadow.commands.deliver import deliver
    from shadow.record.fleet.replay import Interrupted
    from shadow.trees import TreeError, source_tree
    from shadow.verdict import Exit

    if arguments.ray_address is not None and arguments.engine != "ray":
        print("shadow replay: --ray-address is for --engine ray", file=sys.stderr)
        return int(Exit.USAGE)
    try:
        with nullcontext() if arguments.tree is None else source_tree(arguments.tree) as tree:
            report = _replayed(arguments, tree)
    except TreeError as error:
        print(f"shadow replay: {error}", file=sys.stderr)
        return int(Exit.USAGE)
    except Interrupted as stop:
        print(f"shadow replay: interrupted: {stop}; nothing was left running", file=sys.stderr)
        return _INTERRUPTED
    failed = report.verdict.exit_code == Exit.HARNESS
    return deliver(report, arguments, first="What went wrong" if failed else "First divergence")


def _replayed(arguments: argparse.Namespace, tree: Path | None) -> Report:
    from shadow.record.fleet.engine import EngineError
    from shadow.record.fleet.find import find_records
    from shadow.record.fleet.replay import replay_fleet
    from shadow.record.one import TITLE, Work, replay_one
    from shadow.record.report import trouble_report

    work = Work(tree, arguments.planners, arguments.tree or "")
    places: list[Path] = arguments.records
    if len(places) == 1 and places[0].is_file() and arguments.engine == "local":
        return replay_one(places[0].resolve(), work).report
    found = find_records(places)
    jobs = _jobs(arguments, len(found.records))
    described = f"local, {jobs} at a time"
    if arguments.engine == "ray":
        described = f"ray, at {arguments.ray_address or 'the default address'}"
    try:
        return replay_fleet(found, lambda: _engine(arguments, work, jobs), described, places)
    except EngineError as error:
        return trouble_report(TITLE, str(error))


def _jobs(arguments: argparse.Namespace, records: int) -> int:
    from shadow.record.fleet.local import cores

    return max(1, min(arguments.jobs or cores(), records))


def _engine(arguments: argparse.Namespace, work: Work, jobs: int) -> Engine:
    if arguments.engine == "ray":
        from shadow.record.fleet.ray_engine import RayEngine

        return RayEngine(work, arguments.jobs, arguments.ray_address)
    from shadow.record.fleet.local import LocalEngine

    return LocalEngine(work, jobs)
