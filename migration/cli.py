"""`migrate`: take a class apart, slice by slice. Exit codes: 0 done or nothing to do, 1 would change
(--check), 2 refused, 3 error, 64 usage."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Commands = object

DONE, WOULD_CHANGE, REFUSED, ERROR, USAGE = 0, 1, 2, 3, 64


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    from migration.commands import COMMANDS

    parser = _Parser(prog="migrate", description="Take a monolithic class apart, slice by slice, with proof.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        import_module(f"migration.commands.{name}").configure(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Console entry point."""
    arguments = _parser().parse_args(argv)
    # Loaded only now, so that --help and usage errors stay quick.
    from migration.code.collector import few_collections, no_collection_at_exit
    from migration.code.depth import deep_trees
    from migration.errors import MigrationError

    no_collection_at_exit()
    warnings.simplefilter("ignore", SyntaxWarning)  # about the code that is read, for its authors
    try:
        with few_collections(), deep_trees():
            sys.exit(import_module(f"migration.commands.{arguments.command}").run(arguments))
    except MigrationError as error:
        print(f"migrate: {error.code} {error}\n  way out: {error.way_out}", file=sys.stderr)
        sys.exit(ERROR)
    except BrokenPipeError:
        # Whoever read the output has seen enough (`migrate ... | head`); what was written stays written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        print(f"migrate: {error.strerror}: {error.filename}", file=sys.stderr)
        sys.exit(ERROR)
    except KeyboardInterrupt as interrupt:
        print(f"migrate: {interrupt}" if interrupt.args else "migrate: interrupted", file=sys.stderr)
        sys.exit(128 + getattr(interrupt, "number", signal.SIGINT))
