"""`migrate commute`: whether two slices can land in either order."""

from __future__ import annotations

import argparse

from migration.cli import DONE, REFUSED, Commands
from migration.commands.options import add_repository


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "commute",
        help="can two slices land in either order?",
        description="Cut both slices in both orders in memory and compare every byte of the results. "
        "Exit code 0: either order; 2: not.",
    )
    parser.add_argument("first", metavar="A")
    parser.add_argument("second", metavar="B")
    add_repository(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(arguments: argparse.Namespace) -> int:
    import dataclasses

    from migration import render
    from migration.code.tree import DiskTree
    from migration.commands.writing import open_repository
    from migration.inverse.commute import Commute, commute
    from migration.slices import load_recipe

    root = open_repository(arguments)
    first, second = load_recipe(arguments.first), load_recipe(arguments.second)
    outcome = commute(first, second, DiskTree(root))
    agrees = isinstance(outcome, Commute)
    if arguments.json:
        body = {"schema": 1, "slices": [first.name, second.name], "commute": agrees}
        render.as_json(body | dataclasses.asdict(outcome))
    elif isinstance(outcome, Commute):
        files = ", ".join(outcome.files)
        render.line(f"{first.name} and {second.name} commute: either order gives the same bytes in {files}")
    else:
        order = f"; land {outcome.order[0]} before {outcome.order[1]}" if outcome.order else ""
        render.line(f"{first.name} and {second.name} do not commute{order}")
        for reason in outcome.reasons:
            render.line(f"  {reason}")
    return DONE if agrees else REFUSED
