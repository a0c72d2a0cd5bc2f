"""`migrate`: take a class apart, slice by slice. Exit codes: 0 done or nothing to do, 1 would change
(--check), 2 refused, 3 error, 64 usage."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

DONE, WOULD_CHANGE, REFUSED, ERROR, USAGE = 0, 1, 2, 3, 64


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="migrate", description="Take a monolithic class apart, slice by slice, with proof.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    inventory = commands.add_parser(
        "inventory", help="what is in a class: sections, methods, attributes, hazards"
    )
    inventory.add_argument("file", metavar="FILE", type=Path)
    inventory.add_argument(
        "--class", dest="class_name", metavar="C", help="default: the longest class of the file"
    )
    inventory.add_argument("--json", action="store_true", help="print JSON instead of tables")
    port = commands.add_parser(
        "port",
        help="move a section into its handler module",
        description="Move the methods of a slice into their handler module and leave delegating stubs.",
    )
    port.add_argument(
        "slice", metavar="SLICE", help="name of a recipe that comes with migrate, or a .toml file"
    )
    port.add_argument(
        "--cut", action="store_true", required=True, help="one step: move the methods, leave stubs"
    )
    port.add_argument(
        "--root", type=Path, default=Path("."), metavar="DIR", help="repository (default: here)"
    )
    mode = port.add_mutually_exclusive_group()
    mode.add_argument("--diff", action="store_true", help="print a patch for `git apply`, write nothing")
    mode.add_argument("--check", action="store_true", help="write nothing, exit 1 if something would change")
    port.add_argument("--json", action="store_true", help="print JSON instead of tables")
    port.add_argument(
        "--allow-dirty", action="store_true", help="write although git reports uncommitted changes"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Console entry point."""
    arguments = _parser().parse_args(argv)
    # Loaded only now, so that --help and usage errors stay quick.
    from migration import commands
    from migration.errors import MigrationError

    try:
        sys.exit(getattr(commands, arguments.command)(arguments))
    except MigrationError as error:
        print(f"migrate: {error.code} {error}\n  way out: {error.way_out}", file=sys.stderr)
        sys.exit(ERROR)
    except OSError as error:
        print(f"migrate: {error.strerror}: {error.filename}", file=sys.stderr)
        sys.exit(ERROR)
