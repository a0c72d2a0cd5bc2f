"""`migrate status`: where each slice stands, what says so, and since when."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from migration.cli import DONE, ERROR, Commands
from migration.commands.options import add_repository


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "status",
        help="slices by phases: what is in the tree, what proves it, since when",
        description="For each slice the phase that the tree is in (handler absent, ported, gated, cleaned), the commit "
        "that brought each phase and its age, whether its proof file holds now, open gate flags and their age, "
        "shadow runs whose reports lie in the tree or in out/, and the lines that are left of the section.",
        epilog="examples:\n  migrate status\n  migrate status slices/cache.toml --repo ../worker\n"
        "  migrate status --json | jq '.slices[] | {slice, phase}'\n\n"
        "exit codes: 0; 3 where no slice, or not a named one, could be looked at",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "slices",
        metavar="SLICE",
        nargs="*",
        help="recipes to show beside those that come with migrate: names, or .toml files",
    )
    add_repository(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    import time

    from migration.errors import MigrationError
    from migration.status.survey import survey

    root: Path = arguments.root.resolve()
    if not root.is_dir():
        raise MigrationError("MG303", f"{root} is not a directory")
    status = survey(root, arguments.slices, time.time())
    if arguments.json:
        from migration import render
        from migration.status.as_json import status_json

        render.as_json(status_json(status))
    else:
        from migration.status.table import show

        show(status)
    unseen = [one.name for one in status.slices if one.named and not one.seen]
    if not any(one.seen for one in status.slices):
        print(f"migrate status: no slice could be looked at in {root}", file=sys.stderr)
        return ERROR
    if unseen:
        print(f"migrate status: could not be looked at: {', '.join(unseen)}", file=sys.stderr)
        return ERROR
    return DONE
