"""Which methods of a slice are not what was proved, as far as edited files still tell."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migration.code.source import read_source
from migration.code.structure import Method, outline
from migration.code.tree import OverlayTree, Tree
from migration.errors import MigrationError
from migration.inverse.fold import fold, stubs_of
from migration.inverse.hunks import apply, text_bytes, text_lines
from migration.move.cut import CutPlan, module_names, movings
from migration.move.planned import body_hash
from migration.move.proof import stub_faults
from migration.phases.gate import GatePlan, plan_gate
from migration.phases.gate_text import gated
from migration.phases.state import cut_anew, drift, ungated
from migration.proofs.record import ProofFile


def edits(tree: Tree, proof: ProofFile) -> tuple[str, ...]:
    """One line for each method; none where the edit is outside of all of them."""
    worker, handler = tree.read(proof.recipe.source_file), tree.read(proof.recipe.target_file)
    assert worker is not None and handler is not None
    try:
        if proof.phase in ("port", "gate"):
            return tuple(_of_legacy(tree, proof, worker))
        return tuple(_of_moved(tree, proof, worker, handler))
    except MigrationError as error:
        return (str(error),)


def _of_legacy(tree: Tree, proof: ProofFile, worker: bytes) -> Iterator[str]:
    """With the legacy bodies in the class: these, their gates, and what the handler ought to be."""
    recipe = proof.recipe
    source = read_source(recipe.source_file, worker)
    whole = ungated(recipe, source)
    there = _methods(proof, whole)
    known = {detail.moved_name: detail.body for detail in proof.proof.details}
    yield from (f"{name} is missing" for name in proof.names if name not in there)
    changed = {name for name, method in there.items() if body_hash(method.node) != known[name]}
    yield from (
        f"{recipe.source_class}.{there[name].name} is not what was ported" for name in sorted(changed)
    )
    cut = cut_anew(recipe, tree, whole)
    if isinstance(cut, CutPlan):
        drifted = (refusal.where for refusal in drift(recipe, tree, cut))
        yield from (f"{recipe.handler_class}.{n} is not what was ported" for n in drifted if n not in changed)
    if proof.phase == "gate":
        pairs = gated(outline(source, recipe.source_class), recipe)
        yield from (f"{name} has no gate" for name in there if name not in pairs)
        again = plan_gate(recipe, OverlayTree(tree, {recipe.source_file: whole}))
        if isinstance(again, GatePlan):
            shape = outline(
                read_source(recipe.source_file, again.changes[0].after or b""), recipe.source_class
            )
            written = {name: gate for name, (gate, _) in gated(shape, recipe).items()}
            for name, (gate, _) in pairs.items():
                if name in written and ast.dump(gate.node) != ast.dump(written[name].node):
                    yield f"the gate of {name} is not what `migrate gate` writes"


def _of_moved(tree: Tree, proof: ProofFile, worker: bytes, handler: bytes) -> Iterator[str]:
    """With the bodies in the handler alone: folded back, these and their delegates."""
    recipe = proof.recipe
    lines, _ = apply(text_lines(worker), proof.delegates)
    worker = text_bytes(lines)
    stubs = _methods(proof, worker)
    there = {m.name for m in outline(read_source(recipe.target_file, handler), recipe.handler_class).methods}
    names = [name for name in stubs if name in there]
    lost = [name for name in proof.names if name not in there or name not in (*stubs, *proof.dropped)]
    yield from (f"{name} is missing" for name in lost)
    folded = fold(recipe, worker, handler, names, proof.inverse).worker
    restored = _methods(proof, folded)
    known = {detail.moved_name: detail.body for detail in proof.proof.details}
    yield from (
        f"{recipe.handler_class}.{name} is not what was moved"
        for name in names
        if name not in restored or body_hash(restored[name].node) != known[name]
    )
    source = read_source(recipe.source_file, folded)
    shape, known_names = outline(source, recipe.source_class), module_names(recipe, source)
    moving, _ = movings(recipe, tree, source, shape, tuple(restored.values()), known_names)
    for one in moving:
        if faults := stub_faults(recipe, stubs[one.name].node, one):
            yield f"the delegate of {one.name}: {', '.join(faults)}"


def _methods(proof: ProofFile, worker: bytes) -> dict[str, Method]:
    """The slice's methods in the class, by their names in the handler."""
    source = read_source(proof.recipe.source_file, worker)
    return stubs_of(proof.recipe, outline(source, proof.recipe.source_class), proof.names)
