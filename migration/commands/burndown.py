"""`migrate burndown`: what is left of the monolith, commit by commit."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from migration.cli import DONE, ERROR, Commands
from migration.commands.options import add_repository


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "burndown",
        help="what is left of the class, commit by commit, as a table and a chart",
        description="The history from git, along the first parents: lines left in the file and in the class, methods, "
        "hasattr and getattr calls on self, members of the handlers' Protocols, open gates, lines of the handlers.\n"
        "A row for each commit that touched the file or a handler. Nothing is checked out, nothing is kept on disk.",
        epilog="examples:\n  migrate burndown\n  migrate burndown --since v1.0 --html out/burndown.html\n"
        "  migrate burndown pkg/worker.py --class Worker --json\n\n"
        "exit codes: 0; 3 where there is nothing to show (no git, no such file in it, no version that parses)",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="file of the class (default: the one that the slices are of)"
    )
    parser.add_argument(
        "--class", dest="class_name", metavar="C", help="the class (default: the slices', or the longest)"
    )
    add_repository(parser)
    parser.add_argument("--since", metavar="REV", help="begin with the state at this revision")
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="also write a page with charts, complete in itself"
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON, with every commit, instead of a table"
    )


def run(arguments: argparse.Namespace) -> int:
    from migration.burndown.gitrun import Blobs, GitError, open_git
    from migration.burndown.history import read_history
    from migration.burndown.rows import make_rows
    from migration.burndown.subject import choose_subject
    from migration.errors import MigrationError
    from migration.status.known import known_slices

    root: Path = arguments.root.resolve()
    if not root.is_dir():
        raise MigrationError("MG303", f"{root} is not a directory")
    recipes = [one.recipe for one in known_slices(root, ()) if one.recipe]
    subject = choose_subject(root, recipes, arguments.file, arguments.class_name)
    try:
        repository = open_git(root)
        history = read_history(repository, (subject.file, *subject.handlers), arguments.since)
        with Blobs(repository) as blobs, _progress(len(history.commits)) as step:
            rows = make_rows(
                history.commits, subject.file, subject.class_name, subject.handlers, blobs.read, step
            )
    except GitError as error:
        print(f"migrate burndown: no history: {error}", file=sys.stderr)
        return ERROR
    if not any(row.monolith for row in rows):
        what = (
            "no commit has it" if not rows else f"none of {len(rows)} commits has a version of it that parses"
        )
        print(f"migrate burndown: nothing to show of {subject.file}: {what}", file=sys.stderr)
        return ERROR
    if arguments.html is not None:
        from migration.burndown.page import page
        from migration.ledger.interrupts import held_back
        from reports.write import ReportWriteError, write_report

        text = page(subject, history, rows)
        try:
            with held_back():
                write_report(arguments.html, text)
        except ReportWriteError as error:
            print(f"migrate burndown: {error}", file=sys.stderr)
            return ERROR
    if arguments.json:
        from migration import render
        from migration.burndown.as_json import burndown_json

        render.as_json(burndown_json(subject, history, rows))
    else:
        from migration.burndown.table import show

        show(subject, history, rows)
        if arguments.html is not None:
            print(f"chart: {arguments.html}")
    return DONE


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Commits measured, on stderr; nothing where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("measuring commits"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)
