"""The command line of `shadow`. Parsing imports neither torch nor batchgen."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from shadow.commands import compare, diff, gates, graphs, mutants, noise, quirks, record, replay, shrink
from shadow.commands.options import Parser

_COMMANDS = (compare, graphs, record, replay, diff, quirks, gates, noise, shrink, mutants)


def parser() -> Parser:
    top = Parser(
        prog="shadow",
        description="Runs two versions of a worker on the same requests and says where they part.",
        epilog="Exit codes: 0 all compared and equal; 1 divergence; 2 the harness itself failed; "
        "3 coverage short (some kind of value was never compared); 64 usage.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for command in _COMMANDS:
        command.add_parser(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code (usage errors leave through SystemExit 64)."""
    arguments = parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except KeyboardInterrupt:
        print("shadow: interrupted; nothing was left running", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    raise SystemExit(main())
