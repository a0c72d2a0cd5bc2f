"""`shadow record`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadow.commands import options

if TYPE_CHECKING:
    from reports import Report


def add_parser(commands: Any) -> None:
    record = commands.add_parser(
        "record",
        help="one source tree's run into a file, to replay and compare anywhere",
        description="Runs the worker of a source tree on requests and records its events as integers: requests, "
        "page tables, lengths, tokens, the inputs of every boundary decision and the decision. A recorder that "
        "is killed leaves a file that can be read.",
    )
    record.add_argument(
        "--tree",
        default=".",
        metavar="TREE",
        help="a folder that holds batchgen/, a worker file, or a git revision (default: this folder)",
    )
    record.add_argument(
        "--requests", required=True, type=options.file, metavar="FILE", help="OpenAI batch format"
    )
    record.add_argument("-o", "--output", required=True, type=Path, metavar="FILE", help="a new file")
    record.add_argument("--digests", action="store_true", help="also KV content, as digests")
    record.add_argument("--logits", action="store_true", help="also every row of logits: large")
    record.add_argument(
        "--chunk",
        type=options.positive,
        default=64,
        metavar="N",
        help="events a chunk: at most so many are lost",
    )
    options.add_engine_options(record)
    record.add_argument(
        "--policy",
        choices=("boundary", "step"),
        default="boundary",
        help="step: each question to the planners of the step policy, their plans, and what each step did",
    )
    record.add_argument("--spill-dir", metavar="DIR", help="where the step policy keeps rows that make room")
    record.add_argument("--threads", type=options.positive, metavar="N", help="default: half the cores")
    options.add_report_options(record)
    record.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from shadow.commands.deliver import deliver
    from shadow.record.report import trouble_report
    from shadow.trees import TreeError, source_tree
    from shadow.verdict import Exit

    misuse = _misuse(arguments)
    if misuse is not None:
        print(f"shadow record: {misuse}", file=sys.stderr)
        return int(Exit.USAGE)
    if arguments.output.exists():
        message = f"{arguments.output} exists already: name a new file, or remove it"
        return deliver(trouble_report("shadow record", message), arguments, first="What went wrong")
    try:
        with source_tree(arguments.tree) as tree:
            return deliver(_recorded(arguments, tree), arguments, first="What went wrong")
    except TreeError as error:
        print(f"shadow record: {error}", file=sys.stderr)
        return int(Exit.USAGE)


def _misuse(arguments: argparse.Namespace) -> str | None:
    if arguments.policy == "boundary":
        return "--spill-dir is for --policy step" if arguments.spill_dir else None
    if arguments.digests or arguments.logits:
        return "--policy step records plans and steps only: leave --digests and --logits out"
    return None


def _policy_options(arguments: argparse.Namespace) -> dict[str, object]:
    chosen = {"policy": "step", "spill_dir": arguments.spill_dir} if arguments.policy == "step" else {}
    return {name: value for name, value in chosen.items() if value is not None}


def _recorded(arguments: argparse.Namespace, tree: Path) -> Report:
    from rich.console import Console

    from shadow.nursery import code_digest
    from shadow.record.format import RecordError
    from shadow.record.process import Task
    from shadow.record.reader import open_record
    from shadow.record.recorder import Content
    from shadow.record.report import recorded_report, trouble_report
    from shadow.record.start import record_tree

    started = time.monotonic()
    content = [c for c, wanted in zip(Content, (arguments.digests, arguments.logits), strict=True) if wanted]
    task = Task(
        tree=str(tree),
        requests=str(arguments.requests),
        path=str(arguments.output.absolute()),
        threads=options.threads(arguments),
        options=options.engine_options(arguments) | _policy_options(arguments),
        content=tuple(content),
        chunk_events=arguments.chunk,
        facts={"tree": arguments.tree, "code": code_digest(tree)[:12]},
    )
    trouble: str | None = None
    with Console(stderr=True).status(f"recording into {arguments.output} …"):
        try:
            record_tree(task)
        except RecordError as error:
            trouble = str(error)
    try:
        record = open_record(arguments.output)
        return recorded_report(record, trouble, time.monotonic() - started)
    except RecordError as error:
        return trouble_report("shadow record", trouble or str(error), time.monotonic() - started)
