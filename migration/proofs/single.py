"""Check one proof file on a tree in the state that its slice left, from the files alone.

The original is restored from the two files and must have the recorded digest; then the whole proof is
made again on it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from migration.code.source import read_source
from migration.code.structure import outline
from migration.code.tree import OverlayTree, Tree
from migration.errors import MigrationError, Refusal
from migration.inverse.fold import fold
from migration.inverse.hunks import apply, text_bytes, text_lines
from migration.move.base import base_refusals
from migration.move.cut import CutOutcome, CutPlan, module_names, movings, select
from migration.move.proof import Proof, Result, prove
from migration.move.proven import proven_calls
from migration.phases.cleanup import without_delegates
from migration.phases.gate import GatePlan, GateRefused, plan_gate
from migration.phases.state import before_cut, cut_anew, drift, ungated
from migration.proofs.edits import edits
from migration.proofs.record import ProofFile, digest
from migration.proofs.share import Share, share
from migration.recipe import Recipe


@dataclass(frozen=True)
class Verified:
    """The proof holds; `original` are the bytes of the class's file before the phase that it is of, `remarks`
    say which fakes, and files written by hand, are not as they were. `gates` are slices, newer ones or this,
    of which `original` has the gates and that were cleaned up since."""

    proof: ProofFile
    original: bytes
    share: Share
    remarks: tuple[str, ...] = ()
    gates: tuple[Recipe, ...] = ()


@dataclass(frozen=True)
class Broken:
    """The tree is not what was proved, and why; `share` where the legacy bodies are still there to tell."""

    proof: ProofFile
    reasons: tuple[str, ...]
    share: Share | None = None


Verdict = Verified | Broken


def verify_single(tree: Tree, proof: ProofFile, why: str = "") -> Verdict:
    """`why` the class's file cannot be what the slice left, where that is known."""
    try:
        return _verify(tree, proof, why)
    except MigrationError as error:
        return Broken(proof, (f"{error.code} {error}",))


def _verify(tree: Tree, proof: ProofFile, why: str) -> Verdict:
    recipe = proof.recipe
    worker, handler = tree.read(recipe.source_file), tree.read(recipe.target_file)
    if worker is None or handler is None:
        missing = recipe.source_file if worker is None else recipe.target_file
        return Broken(proof, (f"{missing} is missing",))
    edited = [
        path
        for path, data, known in (
            (recipe.source_file, worker, proof.after),
            (recipe.target_file, handler, proof.handler),
        )
        if digest(data) != known and not (why and path == recipe.source_file)
    ]
    wrong, remarks = _beside(tree, proof)
    if why or edited or wrong:
        own = edits(tree, proof) if edited else ()
        reasons = (*([why] if why else ()), *(f"{path} was edited after the proof" for path in edited))
        return Broken(proof, (*reasons, *wrong, *own), _share_of_edited(tree, proof, worker))
    verdict = _verify_pair(tree, proof, worker, handler)
    return dataclasses.replace(verdict, remarks=remarks) if isinstance(verdict, Verified) else verdict


def _share_of_edited(tree: Tree, proof: ProofFile, worker: bytes) -> Share | None:
    """With the legacy bodies in the class the handler can be written again, whatever became of it."""
    if proof.phase not in ("port", "gate") or digest(worker) != proof.after:
        return None
    cut = cut_anew(proof.recipe, tree, ungated(proof.recipe, read_source(proof.recipe.source_file, worker)))
    return share(tree, proof, _handler_of(cut)) if isinstance(cut, CutPlan) else None


def _handler_of(cut: CutPlan) -> bytes:
    found = next(change.after for change in cut.changes if change.path == cut.recipe.target_file)
    assert found is not None
    return found


def _beside(tree: Tree, proof: ProofFile) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(what is wrong, what only is to be known). Calls of the moved code go through an adapter, so its bytes
    are part of what was reviewed; a fake serves tests, which are free to change it, and what was written by
    hand is for editing."""
    found: dict[bool, list[str]] = {True: [], False: []}
    for path, known in proof.generated:
        data = tree.read(path)
        if data is None:
            found[path == proof.recipe.fakes].append(f"{path} is missing")
        elif digest(data) != known:
            found[path == proof.recipe.fakes].append(f"{path} was edited after the proof")
    for path, known in proof.human:
        data = tree.read(path)
        if data is None:
            found[False].append(f"{path} is missing")
        elif digest(data) != known:
            found[True].append(f"{path}, written by hand, was edited after the proof")
    return tuple(found[False]), tuple(found[True])


def _verify_pair(tree: Tree, proof: ProofFile, worker: bytes, handler: bytes) -> Verdict:
    """The proof of two files that are what they were."""
    recipe = proof.recipe
    if proof.phase in ("port", "gate"):
        return _verify_wiring(tree, proof, worker)
    cut, lost = apply(text_lines(worker), proof.delegates)
    whole = text_bytes(cut)
    if lost or without_delegates(recipe, whole, proof.dropped) != worker:
        return Broken(proof, ("more than delegates is gone",))
    folded = fold(recipe, whole, handler, proof.names, proof.inverse)
    original = folded.worker
    written = handler  # of a cut nothing else has the digest that was recorded
    if proof.phase == "cleanup":
        again = plan_gate(recipe, OverlayTree(tree, {recipe.source_file: original}), wired=False)
        original = (again.changes[0].after or b"") if isinstance(again, GatePlan) else b""
        written = _handler_of(again.cut) if isinstance(again, GatePlan) else b""
    if digest(original) != proof.before:
        return Broken(proof, ("the original cannot be restored: the proof file was edited", *folded.lost))
    found = _prove(tree, proof, folded.worker, whole, handler)
    if isinstance(found, tuple):
        return Broken(proof, _shown(found))
    return _judged(tree, proof, found, original, written)


def _judged(tree: Tree, proof: ProofFile, again: Proof, original: bytes, written: bytes) -> Verdict:
    if again != proof.proof:
        known = set(proof.proof.details)
        names = [detail.name for detail in again.details if detail not in known]
        of = f" of {', '.join(names)}" if names else ""
        return Broken(proof, (f"the proof file states something else{of} than what is proved now",))
    return Verified(proof, original, share(tree, proof, written))


def _verify_wiring(tree: Tree, proof: ProofFile, worker: bytes) -> Verdict:
    """A port or a gate: made again on the class without gates, it must give what is there."""
    recipe = proof.recipe
    original = ungated(recipe, read_source(recipe.source_file, worker))
    if digest(original) != proof.before:
        return Broken(proof, ("taking the gates out does not give the original",))
    reasons: list[str] = []
    cut: CutOutcome
    if proof.phase == "gate":
        again = plan_gate(recipe, OverlayTree(tree, {recipe.source_file: original}))
        if not isinstance(again, GatePlan):
            refusals = again.refusals if isinstance(again, GateRefused) else ()
            return Broken(proof, _shown(refusals) or ("the class cannot be gated any more",))
        cut = again.cut
        if again.changes[0].after != worker:
            reasons.append("the gates are not what `migrate gate` writes")
    else:
        cut = cut_anew(recipe, tree, original)
        if not isinstance(cut, CutPlan):
            return Broken(proof, ("the methods of the class cannot be cut any more",))
        reasons += [f"{r.where} of the handler is not the legacy method" for r in drift(recipe, tree, cut)]
    if reasons:
        return Broken(proof, tuple(reasons))
    return _judged(tree, proof, cut.proof, original, _handler_of(cut))


def _shown(refusals: Sequence[Refusal]) -> tuple[str, ...]:
    return tuple(f"{r.code} {r.where}:{r.line} {r.message}" for r in refusals)


def _prove(
    tree: Tree, proof: ProofFile, original: bytes, worker: bytes, handler: bytes
) -> Proof | tuple[Refusal, ...]:
    recipe = proof.recipe
    before = read_source(recipe.source_file, original)
    shape = outline(before, recipe.source_class)
    moved, _ = movings(recipe, tree, before, shape, select(shape, recipe), module_names(recipe, before))
    if found := base_refusals(recipe, tree, handler):
        return found
    details = proof.proof.details
    was = OverlayTree(before_cut(recipe, tree), {recipe.source_file: original})
    proven, unproven, _ = proven_calls(recipe, before, shape, was, {one.label for one in moved})
    if unproven:
        return tuple(unproven)
    result = Result(
        worker,
        handler,
        {d.moved_name: d.lazy_imports for d in details if d.lazy_imports},
        {d.moved_name: d.late_reads for d in details if d.late_reads},
        proof.proof.alias,
        proof.proof.imports_removed,
        proven,
    )
    return prove(recipe, before, moved, result)
