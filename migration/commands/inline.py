"""`migrate inline`: fold a slice back into its class."""

from __future__ import annotations

import argparse

from migration.cli import DONE, REFUSED, WOULD_CHANGE, Commands
from migration.commands.options import add_write_modes


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "inline",
        help="fold a slice back into its class: the inverse of port --cut",
        description="Fold the methods of a handler back into the class that they were cut out of. A tree that "
        "was not edited since gets its original bytes back; later edits of the methods are kept.",
        epilog="example:\n  migrate inline kv --diff",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("slice", metavar="SLICE", help="name of a slice that was cut here, or its proof file")
    add_write_modes(parser)


def run(arguments: argparse.Namespace) -> int:
    import dataclasses

    from migration import render
    from migration.code.tree import DiskTree
    from migration.commands.writing import is_dry, open_repository, write
    from migration.inverse.inline import InlineRefused, plan_inline
    from migration.ledger.patch import patch
    from migration.proofs.store import load_proof

    root = open_repository(arguments)
    proof = load_proof(root, arguments.slice)
    outcome = plan_inline(DiskTree(root), proof)
    if isinstance(outcome, InlineRefused):
        if arguments.json:
            refusals = [dataclasses.asdict(r) | {"way_out": r.way_out} for r in outcome.refusals]
            render.as_json(
                {"schema": 1, "slice": proof.recipe.name, "outcome": "refused", "refusals": refusals}
            )
        else:
            render.refusals(proof.recipe.name, outcome.refusals)
        return REFUSED
    write(root, outcome.changes, arguments)
    if arguments.json:
        render.as_json(
            {
                "schema": 1,
                "slice": proof.recipe.name,
                "outcome": "planned" if is_dry(arguments) else "written",
                "methods": outcome.methods,
                "exact": outcome.exact,
                "files": [change.path for change in outcome.changes],
                "diff": patch(outcome.changes).decode("utf-8"),
            }
        )
    elif not arguments.diff:
        render.inlined(proof.recipe.name, outcome, written=not is_dry(arguments))
    return WOULD_CHANGE if arguments.check else DONE
