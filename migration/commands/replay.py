"""`migrate replay`: apply a recipe to a newer version of the class."""

from __future__ import annotations

import argparse
from pathlib import Path

from migration.cli import DONE, REFUSED, WOULD_CHANGE, Commands
from migration.commands.options import add_write_modes


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "replay",
        help="apply a slice to a newer version of the class",
        description="Say per method whether it is unchanged, re-derived (its new body moves, with its own proof) or in "
        "conflict, and cut the newer file. With conflicts nothing is written unless --skip-conflicts.",
        epilog="example:\n  migrate replay kv --onto upstream/worker.py --check",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("slice", metavar="SLICE", help="a recipe with [planned.bodies], or a proof file")
    parser.add_argument(
        "--onto", metavar="FILE", help="the newer file, relative to the repository (default: the recipe's)"
    )
    parser.add_argument("--skip-conflicts", action="store_true", help="cut the methods without a conflict")
    add_write_modes(parser)


def run(arguments: argparse.Namespace) -> int:
    import dataclasses

    from migration import render
    from migration.code.tree import DiskTree
    from migration.commands.writing import is_dry, open_repository, write
    from migration.inverse.replay import plan_replay
    from migration.move.cut import CutPlan, CutRefused
    from migration.move.outcome_json import outcome_json
    from migration.proofs.record import loads, proof_change, record
    from migration.proofs.where import SUFFIX
    from migration.slices import load_recipe

    if arguments.slice.endswith(SUFFIX):
        proof = loads(Path(arguments.slice).read_bytes(), arguments.slice)
        recipe, planned = proof.recipe, {d.key: d.body for d in proof.proof.details}
    else:
        recipe = load_recipe(arguments.slice)
        planned = dict(recipe.planned)
    if arguments.onto:
        recipe = dataclasses.replace(recipe, source_file=Path(arguments.onto).as_posix())
    root = open_repository(arguments)
    tree = DiskTree(root)
    replay = plan_replay(recipe, planned, tree)
    outcome = replay.outcome
    if isinstance(outcome, CutPlan):
        *others, worker = outcome.changes
        own = record(outcome)
        changes = (*others, proof_change(own, tree.read(own.path)), worker)
        outcome = dataclasses.replace(outcome, changes=changes)
    conflicts = replay.count("conflict")
    writes = isinstance(outcome, CutPlan) and (not conflicts or arguments.skip_conflicts)
    if arguments.json:
        rows = [dataclasses.asdict(method) for method in replay.methods]
        body = {} if outcome is None else outcome_json(outcome, written=writes and not is_dry(arguments))
        render.as_json({"schema": 1, "slice": recipe.name, "methods": rows, "cut": body})
    elif not arguments.diff:
        render.replayed(replay)
    if isinstance(outcome, CutPlan) and writes:
        write(root, outcome.changes, arguments)
        return WOULD_CHANGE if arguments.check else DONE
    return REFUSED if conflicts or outcome is None or isinstance(outcome, CutRefused) else DONE
