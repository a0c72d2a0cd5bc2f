"""The phases of slices, one after the other, on a tree in memory. Pure: a tree in, changes out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from migration.code.tree import OverlayTree, Tree
from migration.errors import CATALOGUE, Refusal
from migration.ledger.change import FileChange
from migration.phases.cleanup import CleanupPlan, CleanupRefused, plan_cleanup
from migration.phases.gate import GatePlan, GateRefused, plan_gate
from migration.phases.port import PortPlan, PortRefused, plan_port
from migration.proofs.record import ProofFile, proof_change, record_cleanup, record_gate, record_port
from migration.recipe import Recipe
from migration.recipe_checklist import PHASES
from pipeline.config import Slice
from pipeline.errors import PipelineError


@dataclass(frozen=True)
class Stage:
    """One commit of the stack. `label` is that of its pull request, with a letter where a port has parts.

    `rows` are (method, what became of it); `seconds` is the processor time of the codemod.
    """

    label: str
    number: int
    phase: str
    recipe: Recipe
    rows: tuple[tuple[str, str], ...]
    changes: tuple[FileChange, ...]
    seconds: float

    @property
    def subject(self) -> str:
        doing = {"port": "copied to", "gate": "gated before", "cleanup": "left to"}[self.phase]
        what = f"{len(self.rows)} methods {doing} {self.recipe.handler_class}"
        return f"{self.label} {self.phase} {self.recipe.name}: {what}"


def label(number: int, phase: str, part: str = "") -> str:
    """ "5.1" for the port of slice 5, "5.2" for its gate, "5.3" for its cleanup; "5.1b" for a part."""
    return f"{number}.{PHASES.index(phase) + 1}{part}"


def after(tree: Tree, stages: list[Stage] | tuple[Stage, ...]) -> Tree:
    """The tree once these were written."""
    return OverlayTree(tree, {change.path: change.after for stage in stages for change in stage.changes})


def stages(one: Slice, phases: tuple[str, ...], tree: Tree) -> Iterator[Stage]:
    """Those of some phases of a slice on `tree`, in order; PipelineError (2) where a phase is refused."""
    done: list[Stage] = []
    for phase in phases:
        while True:
            stage, more = _stage(one, phase, after(tree, done))
            done.append(stage)
            yield stage
            if not more:
                break


def _stage(one: Slice, phase: str, tree: Tree) -> tuple[Stage, bool]:
    """The next stage of a phase, and whether more of that phase follow."""
    recipe, started = one.recipe, time.process_time()
    part, more = "", False
    match phase:
        case "port":
            port = plan_port(recipe, tree)
            if not isinstance(port, PortPlan):
                raise _refused(one, phase, port.refusals if isinstance(port, PortRefused) else ())
            changes, proof = port.changes, record_port(port, tree)
            part, more = port.part, bool(port.left)
            rows = tuple((name, "copied") for name in port.methods)
        case "gate":
            gate = plan_gate(recipe, tree)
            if not isinstance(gate, GatePlan):
                raise _refused(one, phase, gate.refusals if isinstance(gate, GateRefused) else ())
            changes, proof = gate.changes, record_gate(gate, tree)
            rows = tuple((name, f"gated: {kind.lower()}") for name, kind in gate.effects)
        case _:
            cleanup = plan_cleanup(recipe, tree)
            if not isinstance(cleanup, CleanupPlan):
                raise _refused(one, phase, cleanup.refusals if isinstance(cleanup, CleanupRefused) else ())
            changes, proof = cleanup.changes, record_cleanup(cleanup, tree)
            kept = dict(cleanup.kept)
            rows = tuple(
                (name, f"a delegate stays: {kept[name]}" if name in kept else "gone from the class")
                for name in cleanup.methods
            )
    written = (*changes, _proof(proof, tree))
    seconds = time.process_time() - started
    return Stage(label(one.number, phase, part), one.number, phase, recipe, rows, written, seconds), more


def _proof(proof: ProofFile, tree: Tree) -> FileChange:
    return proof_change(proof, tree.read(proof.path))


def _refused(one: Slice, phase: str, refusals: tuple[Refusal, ...]) -> PipelineError:
    """`migrate` would print a table; the first refusal, and how many more there are, make one line."""
    name = f"{label(one.number, phase)} ({phase} {one.recipe.name})"
    if not refusals:
        return PipelineError(f"{name}: nothing to do on the tree before it, so it cannot be a pull request")
    first = refusals[0]
    more = f", and {len(refusals) - 1} more" if len(refusals) > 1 else ""
    where = f"{first.where}:{first.line}" if first.line else first.where
    why = f"{first.code} {where}: {CATALOGUE[first.code].title}: {first.message}{more}"
    return PipelineError(f"{name} is refused: {why}; way out: {first.way_out}")
