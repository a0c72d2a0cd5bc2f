"""`shadow quirks`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadow.commands import options

if TYPE_CHECKING:
    from reports import Report
    from shadow.record.reader import Record


def add_parser(commands: Any) -> None:
    quirks = commands.add_parser(
        "quirks",
        help="which known defect of the step policy explains a difference",
        description="Runs the step policy of a tree on requests without its known defects, with all of them and with "
        "each alone, and says which one explains where the run with all of them first does something else.",
    )
    quirks.add_argument("--tree", default=".", metavar="TREE", help="as for record (default: this folder)")
    quirks.add_argument("--requests", required=True, type=options.file, metavar="FILE")
    quirks.add_argument("--spill", action="store_true", help="rows that make room are spilled")
    options.add_engine_options(quirks)
    quirks.add_argument("--threads", type=options.positive, metavar="N", help="default: half the cores")
    options.add_report_options(quirks)
    quirks.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from shadow.commands.deliver import deliver
    from shadow.trees import TreeError, source_tree
    from shadow.verdict import Exit

    try:
        with source_tree(arguments.tree) as tree:
            return deliver(_explained(arguments, tree), arguments, first="First divergence")
    except TreeError as error:
        print(f"shadow quirks: {error}", file=sys.stderr)
        return int(Exit.USAGE)


def _explained(arguments: argparse.Namespace, tree: Path) -> Report:
    from shadow.record.defects import explain, known_defects
    from shadow.record.format import RecordError
    from shadow.record.process import Task
    from shadow.record.reader import open_record
    from shadow.record.report import defects_report, trouble_report
    from shadow.record.start import record_tree

    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="shadow-quirks-") as scratch:

        def record(on: tuple[str, ...]) -> Record:
            path = Path(scratch) / ("-".join(on) if len(on) == 1 else f"{len(on)} defects")
            chosen: dict[str, object] = {"policy": "step"}
            if arguments.spill:
                chosen["spill_dir"] = str(Path(scratch) / "spill")
            record_tree(
                Task(
                    tree=str(tree),
                    requests=str(arguments.requests),
                    path=str(path),
                    threads=options.threads(arguments),
                    options=options.engine_options(arguments) | chosen,
                    content=(),
                    chunk_events=64,
                    facts={},
                    defects=on,
                    questions=False,
                )
            )
            return open_record(path)

        try:
            explanation = explain(known_defects(tree), record)
        except RecordError as error:
            return trouble_report("shadow quirks", str(error), time.monotonic() - started)
    return defects_report(explanation, arguments.tree, time.monotonic() - started)
