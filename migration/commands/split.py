"""`migrate split`: divide one over-long method into helpers of the same class."""

from __future__ import annotations

import argparse

from migration.cli import DONE, REFUSED, WOULD_CHANGE, Commands
from migration.commands.options import add_write_modes


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "split",
        help="divide one over-long method into helpers of the same class",
        description="Move runs of statements of one method into private helpers that it calls, so that no piece "
        "is longer than the budget and nothing behaves differently.",
    )
    parser.add_argument("file", metavar="FILE", help="Python file, relative to --repo")
    parser.add_argument("method", metavar="METHOD", help="name of the method")
    parser.add_argument("--class", dest="class_name", metavar="C", help="its class (default: the longest)")
    parser.add_argument(
        "--budget",
        type=_at_least(10),
        default=120,
        metavar="N",
        help="most lines of a piece, docstring apart (default: 120)",
    )
    parser.add_argument(
        "--cap",
        type=_at_least(0),
        default=8,
        metavar="N",
        help="most parameters plus results of one helper (default: 8)",
    )
    parser.add_argument(
        "--name-prefix", type=_prefix, metavar="NAME", help="how helpers begin (default: _METHOD)"
    )
    parser.add_argument(
        "--propagates",
        action="append",
        default=[],
        metavar="NAME",
        help="a context manager that never swallows an exception; may be repeated",
    )
    add_write_modes(parser)


class _at_least:
    """An argparse type: a whole number that is not below `least`."""

    def __init__(self, least: int) -> None:
        self.least = least

    def __call__(self, text: str) -> int:
        if not text.isdecimal() or int(text) < self.least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {self.least} up")
        return int(text)


def _prefix(text: str) -> str:
    if not text.isidentifier() or text.startswith("__"):
        message = f"{text!r} is not a name, or one that Python mangles"
        raise argparse.ArgumentTypeError(message)
    return text


def run(arguments: argparse.Namespace) -> int:
    from pathlib import PurePath

    from migration import render
    from migration.code.source import read_source
    from migration.code.tree import DiskTree
    from migration.commands.writing import is_dry, open_repository, write
    from migration.errors import MigrationError
    from migration.split import report
    from migration.split.plan import SplitClean, SplitOptions, SplitPlan, plan_split

    root = open_repository(arguments)
    target = (root / arguments.file).resolve()
    if not target.is_relative_to(root):
        raise MigrationError("MG313", f"{arguments.file} is not under {root}")
    if not target.is_file():
        raise MigrationError("MG303", f"{arguments.file}: no such file in {root}")
    path = PurePath(target.relative_to(root)).as_posix()
    tree = DiskTree(root)
    options = SplitOptions(
        arguments.budget, arguments.cap, arguments.name_prefix, tuple(arguments.propagates)
    )
    source = read_source(path, target.read_bytes())
    outcome = plan_split(source, arguments.method, arguments.class_name, options, tree)
    if isinstance(outcome, SplitPlan):
        write(root, [outcome.change], arguments)
    written = isinstance(outcome, SplitPlan) and not is_dry(arguments)
    if arguments.json:
        render.as_json(report.as_dict(outcome, written=written))
    elif not (arguments.diff and isinstance(outcome, SplitPlan)):
        report.show(outcome, path, written=written)
    if isinstance(outcome, SplitPlan):
        return WOULD_CHANGE if arguments.check else DONE
    return DONE if isinstance(outcome, SplitClean) else REFUSED
