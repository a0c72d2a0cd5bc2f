"""`migrate verify`: check a working tree against its proof files."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from migration.cli import DONE, REFUSED, Commands
from migration.commands.options import add_repository

if TYPE_CHECKING:
    from migration.proofs.share import Share


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "verify",
        help="check the tree against the proof files of its slices",
        description="Restore the original from the two files, check its digest and make the whole proof again. "
        "Fails when either file, or an adapter that came with them, was edited since.",
        epilog="examples:\n  migrate verify\n  migrate verify kv --base origin/main",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "slices", metavar="SLICE", nargs="*", help="slice names or proof files (default: all in .migrate/)"
    )
    add_repository(parser)
    parser.add_argument(
        "--base",
        metavar="REV",
        help="also require that the restored original is what git has at REV",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def _share(found: Share | None) -> dict[str, object] | None:
    return {"percent": found.percent, **dataclasses.asdict(found)} if found is not None else None


def run(arguments: argparse.Namespace) -> int:
    from migration import render
    from migration.code.tree import DiskTree
    from migration.commands.writing import open_repository
    from migration.ledger.git import content_at, knows
    from migration.proofs.store import load_all, load_proof
    from migration.proofs.verify import Broken, Verified, verify

    root = open_repository(arguments)
    proofs = [load_proof(root, name) for name in arguments.slices] or load_all(root)
    verdicts = verify(DiskTree(root), proofs)
    rows = []
    for verdict in verdicts:
        recipe = verdict.proof.recipe
        reasons = verdict.reasons if isinstance(verdict, Broken) else ()
        origin = ""
        if isinstance(verdict, Verified):
            if arguments.base is not None:
                if content_at(root, arguments.base, recipe.source_file) != verdict.original:
                    reasons = (f"{recipe.source_file} at {arguments.base} is not the restored original",)
                origin = f"it is {recipe.source_file} at {arguments.base}"
            else:
                known = knows(root, verdict.original)
                origin = "git has it" if known else "git does not have it (not committed, or no repository)"
        rows.append(
            {
                "slice": recipe.name,
                "file": recipe.source_file,
                "handler": recipe.target_file,
                "holds": not reasons,
                "methods": verdict.proof.proof.methods,
                "renames": verdict.proof.proof.renames,
                "declared": verdict.proof.proof.declared,
                "reasons": reasons,
                "original": origin,
                "remarks": verdict.remarks if isinstance(verdict, Verified) else (),
                "share": _share(verdict.share),
            }
        )
    if arguments.json:
        render.as_json({"schema": 1, "proofs": rows})
    else:
        render.verdicts(rows)
    return DONE if all(row["holds"] for row in rows) else REFUSED
