"""Where a slice stands: what the class looked like before its gates, and what the handler ought to be."""

from __future__ import annotations

import ast

from migration.code.source import Source, apply_edits, read_source
from migration.code.structure import outline
from migration.code.tree import OverlayTree, Tree
from migration.errors import MigrationError, Refusal
from migration.move.cut import CutOutcome, CutPlan, plan_cut
from migration.phases.gate_module import without_gate
from migration.phases.gate_text import gated, ungate_edits
from migration.recipe import Recipe


def read_worker(recipe: Recipe, tree: Tree) -> Source:
    data = tree.read(recipe.source_file)
    if data is None:
        raise MigrationError("MG303", f"{recipe.source_file} does not exist")
    return read_source(recipe.source_file, data)


def ungated(recipe: Recipe, source: Source) -> bytes:
    """The class's file as it was before `gate`: the same bytes where there is no gate."""
    pairs = gated(outline(source, recipe.source_class), recipe)
    if not pairs:
        return source.data
    return without_gate(recipe, apply_edits(source.data, ungate_edits(source, pairs)))


def before_cut(recipe: Recipe, tree: Tree) -> Tree:
    """The tree as if the handler, and what comes with it, had never been written."""
    return OverlayTree(tree, dict.fromkeys((recipe.target_file, *recipe.generated)))


def cut_anew(recipe: Recipe, tree: Tree, worker: bytes) -> CutOutcome:
    """The cut of `worker` as if the handler had never been written; whether its stubs have what they call is
    not asked."""
    before = OverlayTree(before_cut(recipe, tree), {recipe.source_file: worker})
    return plan_cut(recipe, before, wired=False)


def drift(recipe: Recipe, tree: Tree, plan: CutPlan) -> tuple[Refusal, ...]:
    """Methods of the handler in the tree that are not what a port of the class would write now."""
    data = tree.read(recipe.target_file)
    if data is None:
        return (Refusal("MG114", recipe.target_file, 0, "it does not exist: the slice is not ported"),)
    wanted = next(change.after for change in plan.changes if change.path == recipe.target_file)
    assert wanted is not None
    there, ours = _methods(recipe, data), _methods(recipe, wanted)
    names = [d.moved_name for d in plan.proof.details]
    return tuple(
        Refusal("MG113", name, there[name][0] if name in there else 0, f"{recipe.handler_class}.{name}")
        for name in names
        if name not in there or there[name][1] != ours[name][1]
    )


def _methods(recipe: Recipe, data: bytes) -> dict[str, tuple[int, str]]:
    shape = outline(Source(recipe.target_file, data), recipe.handler_class)
    return {m.name: (m.node.lineno, ast.dump(m.node)) for m in shape.methods}
