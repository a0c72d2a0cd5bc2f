"""What port, gate and cleanup do with their outcome: write it with its proof, say it, return the exit code."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from migration import render
from migration.cli import DONE, REFUSED, WOULD_CHANGE
from migration.code.tree import DiskTree, Tree
from migration.commands.writing import is_dry, open_repository, write
from migration.ledger.change import FileChange
from migration.ledger.patch import patch
from migration.phases.cleanup import CleanupClean, CleanupPlan, CleanupRefused
from migration.phases.gate import GateClean, GatePlan, GateRefused
from migration.phases.port import PortClean, PortPlan, PortRefused
from migration.proofs.record import ProofFile, proof_change
from migration.recipe import Recipe
from migration.slices import load_recipe

Outcome = (
    PortPlan
    | PortRefused
    | PortClean
    | GatePlan
    | GateRefused
    | GateClean
    | CleanupPlan
    | CleanupRefused
    | CleanupClean
)


Planned = TypeVar("Planned", PortPlan, GatePlan, CleanupPlan)


def carry_out(
    arguments: argparse.Namespace,
    plan: Callable[[Recipe, Tree], Outcome],
    planned: type[Planned],
    record: Callable[[Planned, Tree], ProofFile],
) -> int:
    """Plan one phase of the slice on the repository and do what the options say with the outcome."""
    recipe = load_recipe(arguments.slice)
    root = open_repository(arguments)
    tree = DiskTree(root)
    outcome = plan(recipe, tree)
    proof = record(outcome, tree) if isinstance(outcome, planned) else None
    return _finish(arguments, root, tree, outcome, proof)


def _finish(
    arguments: argparse.Namespace, root: Path, tree: Tree, outcome: Outcome, proof: ProofFile | None
) -> int:
    """Exit code of the command; `proof` belongs to an outcome that changes something."""
    phase, name = arguments.command, outcome.recipe.name
    common = {"schema": 1, "slice": name, "phase": phase}
    if isinstance(outcome, PortRefused | GateRefused | CleanupRefused):
        if arguments.json:
            found = [dataclasses.asdict(r) | {"way_out": r.way_out} for r in outcome.refusals]
            render.as_json(common | {"outcome": "refused", "refusals": found})
        else:
            render.refusals(f"{phase} {name}", outcome.refusals)
        return REFUSED
    if isinstance(outcome, PortClean | GateClean | CleanupClean):
        if arguments.json:
            render.as_json(common | {"outcome": "clean"})
        else:
            render.line(f"{phase} {name}: nothing to do")
        return DONE
    assert proof is not None
    *others, last = outcome.changes
    changes = (*others, proof_change(proof, tree.read(proof.path)), last)
    write(root, changes, arguments)
    if arguments.json:
        state = "planned" if is_dry(arguments) else "written"
        files = {"files": [c.path for c in changes], "diff": patch(changes).decode("utf-8", "replace")}
        render.as_json(common | {"outcome": state, **_facts(outcome), **files})
    elif not arguments.diff:
        _say(outcome, changes, written=not is_dry(arguments))
    return WOULD_CHANGE if arguments.check else DONE


def _facts(outcome: PortPlan | GatePlan | CleanupPlan) -> dict[str, Any]:
    if isinstance(outcome, PortPlan):
        return {
            "part": outcome.part,
            "methods": outcome.methods,
            "left": outcome.left,
            "added": outcome.added,
        }
    if isinstance(outcome, GatePlan):
        recipe = outcome.recipe
        effects, parts = dict(outcome.effects), dict(recipe.parts)
        return {"methods": outcome.methods, "effects": effects, "prefix": recipe.prefix, "parts": parts}
    return {"methods": outcome.methods, "kept": dict(outcome.kept), "dropped": outcome.dropped}


def _say(outcome: PortPlan | GatePlan | CleanupPlan, changes: Sequence[FileChange], *, written: bool) -> None:
    recipe = outcome.recipe
    would = "" if written else "would be "
    if isinstance(outcome, PortPlan):
        part = f", part {outcome.part}" if outcome.part else ""
        render.line(
            f"port {recipe.name}{part}: {len(outcome.methods)} methods {would}copied to {recipe.handler_class} in "
            f"{recipe.target_file}, {outcome.added} lines added; nothing is wired, {recipe.source_file} is unchanged"
        )
        if outcome.left:
            render.line(f"  {len(outcome.left)} methods are left: run the command again for the next part")
        else:
            render.line(f"  next: migrate gate {recipe.name}")
    elif isinstance(outcome, GatePlan):
        render.line(f"gate {recipe.name}: {len(outcome.methods)} methods {would}gated by {recipe.gate_name}")
        for kind in ("Pure", "Isolated", "Planned", "Skip"):
            if names := [name for name, effect in outcome.effects if effect == kind]:
                render.line(f"  {kind.lower()}: {', '.join(names)}")
        render.line(f"  {recipe.prefix}_NATIVE=1 runs the handler, {recipe.prefix}_COMPARE=1 runs both")
        for part, methods in recipe.parts:
            render.line(
                f"  {recipe.prefix}_{part}_NATIVE and _COMPARE, where set, decide for {', '.join(methods)}"
            )
    else:
        render.line(
            f"cleanup {recipe.name}: {len(outcome.methods)} legacy bodies and their gates {would}deleted, "
            f"{len(outcome.dropped)} delegates with them"
        )
        for name, why in outcome.kept:
            render.line(f"  delegate {name} stays: {why}")
    render.line(
        f"verified: {outcome.cut.proof.methods} bodies equal the originals with the handles taken out; "
        f"{outcome.cut.proof.comments} comments conserved; both files compile; no new undefined or unused name"
    )
    for change in changes:
        size = (change.after or b"").count(b"\n") - (change.before or b"").count(b"\n")
        render.line(f"  {'new' if change.before is None else 'changed'} {change.path} ({size:+} lines)")
