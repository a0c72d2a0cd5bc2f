"""`migrate declare`: attributes that are made on first use become declared state, before a slice moves."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from migration.cli import DONE, REFUSED, USAGE, WOULD_CHANGE, Commands
from migration.commands.options import add_write_modes

if TYPE_CHECKING:
    from pathlib import Path

    from migration.declare.plan import Wanted
    from migration.recipe import Recipe


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "declare",
        help="attributes made on first use become declared state: no hasattr is left",
        description="Declare attributes in __init__ that are made on first use, and ask for them by `is not None` in "
        "place of hasattr and getattr, in the whole class at once. What the class does stays the same, or nothing "
        "is written. A pull request of its own, before the slice moves.",
        epilog="examples:\n  migrate declare slices/cache.toml --diff\n"
        "  migrate declare pkg/worker.py --attribute _check_counter",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="a recipe by name or .toml file (what its [hasattr.attributes] call optional), or a Python file",
    )
    parser.add_argument(
        "--class", dest="class_name", metavar="C", help="with a Python file: its class (default: the longest)"
    )
    parser.add_argument(
        "--attribute",
        action="append",
        default=[],
        metavar="X",
        help="only this attribute; may be repeated (default: all of the recipe, or all that may be declared)",
    )
    parser.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="OBSTACLE",
        help="something unseen that you vouch for, as the refusal names it; may be repeated",
    )
    add_write_modes(parser)


def run(arguments: argparse.Namespace) -> int:
    import sys

    from migration import render
    from migration.code.depth import deep_trees
    from migration.code.source import read_source
    from migration.code.tree import DiskTree
    from migration.commands.writing import is_dry, open_repository, write
    from migration.declare import report
    from migration.declare.plan import DeclareClean, DeclarePlan, plan_declare
    from migration.slices import load_recipe

    recipe = None if arguments.target.endswith(".py") else load_recipe(arguments.target)
    if recipe is not None and arguments.class_name:
        print("migrate declare: --class goes with a Python file: a recipe names its class", file=sys.stderr)
        return USAGE
    root = open_repository(arguments)
    path = _file(root, arguments.target if recipe is None else recipe.source_file)
    data = (root / path).read_bytes()
    wanted, accepted = _asked(arguments, recipe)
    tree = DiskTree(root)
    with deep_trees(path, data):
        source = read_source(path, data)
        name = recipe.source_class if recipe is not None else arguments.class_name
        outcome = plan_declare(source, name, tree, wanted, (*accepted, *arguments.accept))
    if isinstance(outcome, DeclarePlan):
        write(root, [outcome.change], arguments)
    written = isinstance(outcome, DeclarePlan) and not is_dry(arguments)
    if arguments.json:
        render.as_json(report.as_dict(outcome, path, accepted, written=written))
    elif not (arguments.diff and isinstance(outcome, DeclarePlan)):
        report.show(outcome, path, accepted, written=written)
    if isinstance(outcome, DeclarePlan):
        return WOULD_CHANGE if arguments.check else DONE
    return DONE if isinstance(outcome, DeclareClean) else REFUSED


def _file(root: Path, name: str) -> str:
    from pathlib import PurePath

    from migration.errors import MigrationError

    target = (root / name).resolve()
    if not target.is_relative_to(root):
        raise MigrationError("MG313", f"{name} is not under {root}")
    if not target.is_file():
        raise MigrationError("MG303", f"{name}: no such file in {root}")
    return PurePath(target.relative_to(root)).as_posix()


def _asked(
    arguments: argparse.Namespace, recipe: Recipe | None
) -> tuple[list[Wanted] | None, dict[str, str]]:
    """(attributes, None for all that may be declared; obstacles that the recipe accepts with the reasons)."""
    from migration.declare.plan import Wanted
    from migration.errors import MigrationError
    from migration.recipe_check import near

    if recipe is None:
        return [Wanted(name) for name in dict.fromkeys(arguments.attribute)] or None, {}
    spec = recipe.hasattr
    optional = spec.optional if spec is not None else ()
    if not optional:
        message = f'slice {recipe.name}: no attribute of [hasattr.attributes] is "optional"'
        raise MigrationError("MG541", message)
    assert spec is not None
    if unknown := [name + near(name, optional) for name in arguments.attribute if name not in optional]:
        message = f'slice {recipe.name}: not "optional" in the recipe: {"; ".join(unknown)}'
        raise MigrationError("MG541", message)
    places = dict(spec.places)
    names = list(dict.fromkeys(arguments.attribute)) or optional
    return [Wanted(name, places.get(name, "")) for name in names], dict(spec.accept)
