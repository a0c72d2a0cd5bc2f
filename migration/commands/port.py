"""`migrate port`: move a section into its handler module."""

from __future__ import annotations

import argparse
import dataclasses

from migration.cli import DONE, REFUSED, WOULD_CHANGE, Commands
from migration.commands.options import add_slice, add_write_modes


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "port",
        help="move a section into its handler module",
        description="Move the methods of a slice into their handler module and leave delegating stubs.",
    )
    add_slice(parser)
    parser.add_argument(
        "--cut", action="store_true", required=True, help="one step: move the methods, leave stubs"
    )
    add_write_modes(parser)


def run(arguments: argparse.Namespace) -> int:
    from migration import render
    from migration.code.tree import DiskTree
    from migration.commands.writing import open_repository, write
    from migration.move.cut import CutClean, CutPlan, plan_cut
    from migration.move.outcome_json import outcome_json
    from migration.proofs.record import proof_change, record
    from migration.slices import load_recipe

    recipe = load_recipe(arguments.slice)
    root = open_repository(arguments)
    tree = DiskTree(root)
    outcome = plan_cut(recipe, tree)
    if isinstance(outcome, CutPlan):
        proof = record(outcome)
        # The class's own file is written last: a kill before it leaves a handler that nobody imports.
        *others, worker = outcome.changes
        changes = (*others, proof_change(proof, tree.read(proof.path)), worker)
        outcome = dataclasses.replace(outcome, changes=changes)
        write(root, changes, arguments)
    written = not (arguments.diff or arguments.check)
    if arguments.json:
        render.as_json(outcome_json(outcome, written=written))
    elif not (arguments.diff and isinstance(outcome, CutPlan)):
        render.outcome(outcome, written=written)
    if isinstance(outcome, CutPlan):
        return WOULD_CHANGE if arguments.check else DONE
    return DONE if isinstance(outcome, CutClean) else REFUSED
