"""`migrate verify`: check a working tree against its proof files."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from migration.cli import DONE, REFUSED, Commands
from migration.commands.options import add_repository

if TYPE_CHECKING:
    from migration.code.tree import Tree
    from migration.proofs.share import Share
    from migration.proofs.verify import Verdict


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
        help="also require that what git has at REV is among what the proofs restore",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def _share(found: Share | None) -> dict[str, object] | None:
    return {"percent": found.percent, **dataclasses.asdict(found)} if found is not None else None


def _at_base(root: Path, tree: Tree, revision: str, verdicts: Sequence[Verdict]) -> dict[str, str]:
    """Where each slice stands to the class's file at `revision`; those of a file of which the proofs restore
    nothing that is there are left out."""
    from migration.ledger.git import content_at
    from migration.proofs.verify import Verified, is_behind

    found: dict[str, str] = {}
    held = [verdict for verdict in verdicts if isinstance(verdict, Verified)]
    for path in dict.fromkeys(verdict.proof.recipe.source_file for verdict in held):
        mine = [verdict for verdict in held if verdict.proof.recipe.source_file == path]
        names = [verdict.proof.recipe.name for verdict in mine]
        there, at = content_at(root, revision, path), f"{path} at {revision}"
        if there is None:
            continue
        first = next((index for index, verdict in enumerate(mine) if is_behind(verdict, there)), None)
        if first is not None:
            found |= dict.fromkeys(names[:first], f"{names[first]}, older, restores {at}")
            found[names[first]] = f"it is {at}"
            found |= dict.fromkeys(names[first + 1 :], f"it is older than {at}")
        elif there == tree.read(path):
            found |= dict.fromkeys(names, f"{at} is as it is now")
    return found


def run(arguments: argparse.Namespace) -> int:
    from migration import render
    from migration.code.tree import DiskTree
    from migration.commands.writing import open_repository
    from migration.ledger.git import knows
    from migration.proofs.store import known_proofs, load_all, load_proof
    from migration.proofs.verify import Broken, Verified, verify

    root = open_repository(arguments)
    asked = [load_proof(root, name) for name in arguments.slices]
    names = {proof.recipe.name for proof in asked}
    # Of a stack the newer slices are taken back first, whichever were named.
    others = [
        proof for proof in (known_proofs if asked else load_all)(root) if proof.recipe.name not in names
    ]
    tree = DiskTree(root)
    verdicts = verify(tree, [*asked, *others], names if asked and arguments.base is None else None)
    places = _at_base(root, tree, arguments.base, verdicts) if arguments.base is not None else {}
    rows = []
    for verdict in verdicts:
        recipe = verdict.proof.recipe
        if names and recipe.name not in names:
            continue
        reasons = verdict.reasons if isinstance(verdict, Broken) else ()
        origin = ""
        if isinstance(verdict, Verified):
            if arguments.base is not None:
                origin = places.get(recipe.name, "")
                reasons = (
                    ()
                    if origin
                    else (
                        f"{recipe.source_file} at {arguments.base} is not there, or not what the proofs restore",
                    )
                )
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
