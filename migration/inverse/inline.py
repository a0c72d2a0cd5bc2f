"""`migrate inline`: fold a slice back into its class, and prove that cutting it again gives the same handler."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from migration.code.source import Source, read_source
from migration.code.structure import outline
from migration.code.tree import OverlayTree, Tree
from migration.errors import MigrationError, Refusal
from migration.inverse.fold import Folded, fold
from migration.inverse.hunks import apply, text_bytes, text_lines
from migration.ledger.change import FileChange
from migration.move.cut import CutPlan, plan_cut
from migration.phases.gate import GatePlan, plan_gate
from migration.phases.state import ungated
from migration.presence.capability import capability_name
from migration.proofs.record import ProofFile, digest


@dataclass(frozen=True)
class InlinePlan:
    """Files to write and to delete; `exact` when the class's file has the bytes that it had before the cut."""

    methods: tuple[str, ...]
    changes: tuple[FileChange, ...]
    exact: bool


@dataclass(frozen=True)
class InlineRefused:
    refusals: tuple[Refusal, ...]


def plan_inline(tree: Tree, proof: ProofFile) -> InlinePlan | InlineRefused:
    """The inverse of the cut that `proof` records; the handler may have been edited since."""
    recipe = proof.recipe
    worker, handler = tree.read(recipe.source_file), tree.read(recipe.target_file)
    for path, data in ((recipe.source_file, worker), (recipe.target_file, handler)):
        if data is None:
            raise MigrationError("MG303", f"{path} does not exist")
    assert worker is not None and handler is not None
    if extra := _more_than(proof, handler):
        return _refused("MG112", recipe.target_file, f"it also has {', '.join(extra)}")
    folded = _folded(proof, worker, handler)
    if folded.lost:
        return InlineRefused(tuple(Refusal("MG111", recipe.source_file, 0, lost) for lost in folded.lost))
    gone: dict[str, bytes | None] = dict.fromkeys((recipe.target_file, *proof.created))
    again = plan_cut(recipe, OverlayTree(tree, {**gone, recipe.source_file: folded.worker}))
    if not isinstance(again, CutPlan):
        return _refused("MG111", recipe.source_file, "the folded class cannot be cut again")
    new = next(change.after for change in again.changes if change.path == recipe.target_file)
    assert new is not None
    if _methods(recipe.target_file, new, recipe.handler_class) != _methods(
        recipe.target_file, handler, recipe.handler_class
    ):
        return _refused("MG111", recipe.target_file, "cut again, its methods would differ from what they are")
    changes = [FileChange(recipe.target_file, handler, None), *_created(tree, proof)]
    written = {change.path: change.after for change in again.changes}
    for path in recipe.generated:
        if (data := tree.read(path)) is not None and data == written.get(path):
            changes.append(FileChange(path, data, None))
    if folded.worker != worker:  # of a port nothing has changed there
        changes.append(FileChange(recipe.source_file, worker, folded.worker))
    if (own := tree.read(proof.path)) is not None:
        changes.append(FileChange(proof.path, own, None))
    exact = digest(_before_phase(proof, tree, folded.worker)) == proof.before
    return InlinePlan(tuple(d.name for d in proof.proof.details), tuple(changes), exact)


def _folded(proof: ProofFile, worker: bytes, handler: bytes) -> Folded:
    """The class's file with the methods in it: with gates they are there, without they come from the handler."""
    recipe = proof.recipe
    if proof.phase in ("port", "gate"):
        return Folded(ungated(recipe, read_source(recipe.source_file, worker)), ())
    lines, lost = apply(text_lines(worker), proof.delegates)
    folded = fold(recipe, text_bytes(lines), handler, proof.names, proof.inverse)
    gone = tuple(
        f"no place for the delegate {line.strip()!r}" for hunk in lost for line in hunk.new if "def " in line
    )
    return Folded(folded.worker, (*gone, *folded.lost))


def _before_phase(proof: ProofFile, tree: Tree, original: bytes) -> bytes:
    """What the phase of the proof began with: a clean-up with the gates."""
    if proof.phase != "cleanup":
        return original
    again = plan_gate(proof.recipe, OverlayTree(tree, {proof.recipe.source_file: original}), wired=False)
    return (again.changes[0].after or b"") if isinstance(again, GatePlan) else b""


def _refused(code: str, where: str, message: str) -> InlineRefused:
    return InlineRefused((Refusal(code, where, 0, message),))


def _more_than(proof: ProofFile, handler: bytes) -> list[str]:
    """Definitions of the handler module that inlining would lose."""
    source = read_source(proof.recipe.target_file, handler)
    recipe = proof.recipe
    own = {recipe.handler_class, *(handle.protocol for handle in recipe.handles)}
    own |= {recipe.snapshot.class_name} if recipe.snapshot else set()
    own |= {capability_name(name) for name in recipe.hasattr.capability} if recipe.hasattr else set()
    getters = {f"_{handle.name}" for handle in recipe.handles if handle.expressions or handle.request}
    getters |= {"on"} if recipe.request is not None else set()
    known = {*proof.names, "__init__", "for_worker", *getters}
    found = [
        node.name
        for node in source.tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in own
    ]
    methods = outline(source, proof.recipe.handler_class).methods
    return [*found, *(m.name for m in methods if m.name not in known)]


def _methods(path: str, data: bytes, class_name: str) -> dict[str, str]:
    return {m.name: ast.dump(m.node) for m in outline(Source(path, data), class_name).methods}


def _created(tree: Tree, proof: ProofFile) -> list[FileChange]:
    """Package files that the cut made and that still say what it wrote."""
    doc = f'"""Handlers cut out of {proof.recipe.source_class}."""\n'.encode()
    found = ((path, tree.read(path)) for path in proof.created)
    return [FileChange(path, data, None) for path, data in found if data == doc]
