"""`migrate inventory`: what is in a class."""

from __future__ import annotations

import argparse
from pathlib import Path

from migration.cli import DONE, Commands


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "inventory", help="what is in a class: sections, methods, attributes, hazards"
    )
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument(
        "--class", dest="class_name", metavar="C", help="default: the longest class of the file"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(arguments: argparse.Namespace) -> int:
    import dataclasses

    from migration import render
    from migration.errors import MigrationError
    from migration.survey.inventory import take_inventory

    if not arguments.file.is_file():
        raise MigrationError("MG303", f"{arguments.file} does not exist")
    found = take_inventory(str(arguments.file), arguments.file.read_bytes(), arguments.class_name)
    if arguments.json:
        render.as_json(dataclasses.asdict(found))
    else:
        render.inventory(found)
    return DONE
