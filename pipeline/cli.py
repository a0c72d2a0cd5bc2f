"""The command line: one pull request, main made anew, the golden folders."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from migration.burndown.gitrun import GitError
from migration.code.collector import few_collections
from migration.code.depth import deep_trees
from migration.code.tree import DiskTree
from migration.errors import MigrationError
from migration.ledger.change import FileChange
from migration.ledger.git import uncommitted
from migration.ledger.journal import write_all
from migration.ledger.patch import patch
from pipeline.config import Config, load_config
from pipeline.errors import DONE, FOUND, SHORT, USAGE, PipelineError

_NAME = re.compile(r"[0-9]+\.[123]")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; its exit code. Usage errors leave through SystemExit 64."""
    arguments = _parser().parse_args(argv)
    try:
        with few_collections(), deep_trees():
            root = arguments.root.resolve()
            code: int = arguments.run(arguments, root, load_config(root))
            return code
    except PipelineError as error:
        print(f"pipeline: {error}", file=sys.stderr)
        return error.code
    except MigrationError as error:
        print(f"pipeline: {error.code} {error}; way out: {error.way_out}", file=sys.stderr)
        return SHORT
    except GitError as error:
        print(f"pipeline: git: {error}", file=sys.stderr)
        return SHORT
    except OSError as error:
        print(f"pipeline: {error.strerror}: {error.filename}", file=sys.stderr)
        return SHORT
    except KeyboardInterrupt as interrupt:
        said = str(interrupt) or "interrupted: the branches are whole, the page was not written; run it again"
        print(f"pipeline: {said}", file=sys.stderr)
        return 130


def _parser() -> _Parser:
    parser = _Parser(prog="python -m pipeline", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    pr = commands.add_parser("pr", help="make the branches up to a pull request, check it, write its page")
    pr.add_argument("name", type=_name, metavar="N.P", help="5.1 port, 5.2 gate, 5.3 cleanup of slice 5")
    pr.add_argument("--scale", help="of the shadow comparison: caps/32,prompts/8; 1 is the full size")
    pr.add_argument(
        "--work-tree", action="store_true", help="start from the files as they are, not from HEAD"
    )
    pr.add_argument("--json", action="store_true", help="print the report as JSON")
    pr.set_defaults(run=_pr)
    for name, what, run in (
        ("land", "make the files what the configuration says of main", _land),
        ("golden", "write what cleanup leaves to the golden folders", _golden),
    ):
        command = commands.add_parser(name, help=what)
        mode = command.add_mutually_exclusive_group()
        mode.add_argument(
            "--check", action="store_true", help="write nothing, exit 1 if something would change"
        )
        mode.add_argument("--diff", action="store_true", help="print a patch, write nothing")
        command.add_argument(
            "--allow-dirty", action="store_true", help="also over edits that git does not have"
        )
        command.set_defaults(run=run)
    for command in commands.choices.values():
        command.add_argument("--repo", dest="root", type=Path, default=Path("."), metavar="DIR")
    return parser


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no pull request such as 5.1, 5.2 or 5.3")
    return text


def _pr(arguments: argparse.Namespace, root: Path, config: Config) -> int:
    from rich.console import Console

    from pipeline.pull_request import pull_request
    from reports import to_json
    from reports.terminal import print_report

    if arguments.scale:
        _check_scale(arguments.scale)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    found, path = pull_request(
        config, root, arguments.name, work_tree=arguments.work_tree, scale=arguments.scale, say=say
    )
    if arguments.json:
        print(to_json(found), end="")
    else:
        print_report(found, Console(), first="What went wrong")
        print(f"page: {path.relative_to(root)}")
    return found.verdict.exit_code


def _check_scale(text: str) -> None:
    from shadow.workloads import Scale

    try:
        Scale.parse(text)
    except ValueError as error:
        raise PipelineError(f"--scale: {error}", USAGE) from error


def _land(arguments: argparse.Namespace, root: Path, config: Config) -> int:
    from pipeline.stack import landing

    return _write(arguments, root, landing(config, DiskTree(root)), "land")


def _golden(arguments: argparse.Namespace, root: Path, config: Config) -> int:
    from pipeline.stack import golden

    return _write(arguments, root, golden(config, DiskTree(root)), "golden")


def _write(arguments: argparse.Namespace, root: Path, changes: Sequence[FileChange], name: str) -> int:
    """All files or none; `migrate undo` takes it back."""
    if arguments.diff:
        sys.stdout.buffer.write(patch(changes))
        return DONE
    paths = [change.path for change in changes]
    if not arguments.check and not arguments.allow_dirty:
        if lost := sorted(set(uncommitted(root, paths)) & set(paths)):
            raise PipelineError(
                f"{name}: edits that git does not have would be lost: {', '.join(lost)}: "
                "commit them, or pass --allow-dirty"
            )
    if not arguments.check:
        write_all(root, changes, label=f"pipeline {name}")
    verb = "would be" if arguments.check else "is"
    for change in changes:
        what = "new" if change.before is None else "deleted" if change.after is None else "changed"
        print(f"{change.path} {verb} {what}")
    print(f"{name}: {len(changes)} files differ" if changes else f"{name}: nothing to do")
    return FOUND if arguments.check and changes else DONE
