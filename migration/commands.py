"""The commands: read, plan, show, write. Each returns its exit code."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from migration.cli import DONE, REFUSED, WOULD_CHANGE
from migration.move.cut import CutClean, CutOutcome, CutPlan, plan_cut
from migration.errors import MigrationError
from migration.ledger.git import uncommitted
from migration.survey.inventory import take_inventory
from migration.ledger.journal import pending, recover, write_all
from migration.ledger.patch import patch
from migration.recipe import Recipe, parse_recipe
from migration.code.tree import DiskTree

_SLICES = Path(__file__).with_name("slices")


def load_recipe(name: str) -> Recipe:
    """Recipe by name (those in `migration/slices`) or by path."""
    path = Path(name) if name.endswith(".toml") else _SLICES / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in _SLICES.glob("*.toml")))
        raise MigrationError("MG402", f"no slice {name}; known: {known}")
    return parse_recipe(path.read_text(encoding="utf-8"), path.name)


def inventory(arguments: argparse.Namespace) -> int:
    if not arguments.file.is_file():
        raise MigrationError("MG303", f"{arguments.file} does not exist")
    found = take_inventory(str(arguments.file), arguments.file.read_bytes(), arguments.class_name)
    if arguments.json:
        _print_json(dataclasses.asdict(found))
    else:
        from migration import render

        render.inventory(found)
    return DONE


def port(arguments: argparse.Namespace) -> int:
    recipe = load_recipe(arguments.slice)
    root: Path = arguments.root.resolve()
    if not root.is_dir():
        raise MigrationError("MG303", f"{root} is not a directory")
    dry = arguments.diff or arguments.check
    if pending(root):
        if dry:
            raise MigrationError(
                "MG305", f"{root} holds an unfinished write; run once without --diff or --check"
            )
        recover(root)
    outcome = plan_cut(recipe, DiskTree(root))
    if isinstance(outcome, CutPlan) and not dry:
        dirty = uncommitted(root, [change.path for change in outcome.changes])
        if dirty and not arguments.allow_dirty:
            shown = ", ".join(dirty[:5]) + (f" and {len(dirty) - 5} more" if len(dirty) > 5 else "")
            raise MigrationError("MG304", f"not committed: {shown}")
        write_all(root, outcome.changes)
    if arguments.json:
        _print_json(outcome_json(outcome, written=not dry))
    elif arguments.diff and isinstance(outcome, CutPlan):
        sys.stdout.buffer.write(patch(outcome.changes))
    else:
        from migration import render

        render.outcome(outcome, written=not dry)
    if isinstance(outcome, CutPlan):
        return WOULD_CHANGE if arguments.check else DONE
    return DONE if isinstance(outcome, CutClean) else REFUSED


def outcome_json(outcome: CutOutcome, *, written: bool) -> dict[str, Any]:
    """The outcome as plain values; a plan carries its patch instead of whole files."""
    common = {"schema": 1, "slice": outcome.recipe.name}
    if isinstance(outcome, CutClean):
        return common | {"outcome": "clean", "methods": outcome.methods}
    if isinstance(outcome, CutPlan):
        return common | {
            "outcome": "written" if written else "planned",
            "methods": outcome.methods,
            "handles": [
                {
                    "name": h.spec.name,
                    "protocol": h.spec.protocol,
                    "members": [dataclasses.asdict(m) for m in h.members],
                }
                for h in outcome.handles
            ],
            "proof": dataclasses.asdict(outcome.proof),
            "notes": outcome.notes,
            "files": [change.path for change in outcome.changes],
            "diff": patch(outcome.changes).decode("utf-8"),
        }
    refusals = [dataclasses.asdict(refusal) | {"way_out": refusal.way_out} for refusal in outcome.refusals]
    return common | {"outcome": "refused", "refusals": refusals}


def _print_json(value: Any) -> None:
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
