"""Options that several commands share."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_slice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "slice", metavar="SLICE", help="name of a recipe that comes with migrate, or a .toml file"
    )


def add_repository(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repo",
        "--root",
        dest="root",
        type=Path,
        default=Path("."),
        metavar="DIR",
        help="repository (default: here)",
    )


def add_write_modes(parser: argparse.ArgumentParser) -> None:
    """--repo, --diff, --check, --json, --allow-dirty: what every command that writes takes."""
    add_repository(parser)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--diff", action="store_true", help="print a patch for `git apply`, write nothing")
    mode.add_argument("--check", action="store_true", help="write nothing, exit 1 if something would change")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "--allow-dirty", action="store_true", help="write although git reports uncommitted changes"
    )
