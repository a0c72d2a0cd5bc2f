"""`migrate cleanup`: phase 3, the legacy bodies and the gates go."""

from __future__ import annotations

import argparse

from migration.cli import Commands
from migration.commands.options import add_slice, add_write_modes


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "cleanup",
        help="phase 3: delete legacy bodies and gates",
        description="Legacy bodies, gates and imports that only they used go. A delegate stays only where the name "
        "is public, decorated, or mentioned outside the slice.",
        epilog="example:\n  migrate cleanup kv --diff",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_slice(parser)
    add_write_modes(parser)


def run(arguments: argparse.Namespace) -> int:
    from migration.code.tree import DiskTree
    from migration.commands.phase import finish
    from migration.commands.writing import open_repository
    from migration.phases.cleanup import CleanupPlan, plan_cleanup
    from migration.proofs.record import record_cleanup
    from migration.slices import load_recipe

    recipe = load_recipe(arguments.slice)
    root = open_repository(arguments)
    tree = DiskTree(root)
    outcome = plan_cleanup(recipe, tree)
    proof = record_cleanup(outcome, tree) if isinstance(outcome, CleanupPlan) else None
    return finish(arguments, root, tree, outcome, proof)
