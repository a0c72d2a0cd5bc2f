"""From a recipe and a tree to the subject of a check; what cannot be looked at is refused."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from migration.check.phase import Phase, find_phase
from migration.check.subject import Changed, Subject
from migration.code.source import read_source
from migration.code.structure import outline
from migration.code.tree import Tree
from migration.errors import Refusal
from migration.phases.state import read_worker
from migration.proofs.record import ProofFile
from migration.recipe import Recipe
from migration.recipe_checklist import Checklist


@dataclass(frozen=True)
class Ready:
    """`found_by` says how the phase was found."""

    subject: Subject
    found_by: str


@dataclass(frozen=True)
class NothingThere:
    """There is no handler, or nothing in it: a check of it would have looked at nothing."""

    refusal: Refusal


def read_subject(
    recipe: Recipe,
    checklist: Checklist,
    tree: Tree,
    today: datetime.date,
    *,
    phase: Phase | None = None,
    proofs: Sequence[ProofFile] = (),
    changed: Changed | None = None,
) -> Ready | NothingThere:
    """Read both files of the slice. Without `phase` the tree says which it is in; `proofs` are all that there are."""
    data = tree.read(recipe.target_file)
    if data is None:
        message = f"there is no {recipe.target_file}: {recipe.name} is not ported, and nothing can be checked"
        return NothingThere(Refusal("MG604", recipe.target_file, 0, message))
    worker = read_worker(recipe, tree)
    shape = outline(worker, recipe.source_class)
    handler = read_source(recipe.target_file, data)
    found = find_phase(recipe, worker, shape)
    subject = Subject(
        recipe,
        checklist,
        phase or found.phase,
        tree,
        worker,
        shape,
        handler,
        outline(handler, recipe.handler_class),
        today,
        next((proof for proof in proofs if proof.recipe.name == recipe.name), None),
        tuple(proof for proof in proofs if proof.recipe.name != recipe.name),
        changed,
    )
    if not subject.methods:
        message = f"{recipe.handler_class} has no methods but its constructor"
        return NothingThere(Refusal("MG604", recipe.target_file, subject.handler_shape.node.lineno, message))
    if phase is None:
        return Ready(subject, f"found: {found.how}")
    how = "as asked" if phase == found.phase else f"as asked; the tree is in {found.phase}: {found.how}"
    return Ready(subject, how)
