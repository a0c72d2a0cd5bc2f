"""`migrate port`: the handler beside the class, nothing wired; in parts when it is over its budget."""

from __future__ import annotations

from dataclasses import dataclass

from migration.code.source import Source
from migration.code.structure import outline
from migration.code.tree import Tree
from migration.errors import Refusal
from migration.ledger.change import FileChange
from migration.move.by_hand import missing_by_hand
from migration.move.cut import CutPlan, CutRefused, select
from migration.move.inverse import STUB_COUNTED
from migration.phases.gate_text import gated
from migration.phases.parts import Division, Part, next_letter, part_of
from migration.phases.state import cut_anew, drift, read_worker
from migration.proofs.where import last_part
from migration.recipe import Recipe


@dataclass(frozen=True)
class PortPlan:
    """One pull request of the port. `part` is "" when one is enough; `left` are methods of later parts."""

    recipe: Recipe
    part: str
    methods: tuple[str, ...]
    left: tuple[str, ...]
    added: int
    changes: tuple[FileChange, ...]
    cut: CutPlan


@dataclass(frozen=True)
class PortRefused:
    recipe: Recipe
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True)
class PortClean:
    recipe: Recipe
    methods: tuple[str, ...]


def plan_port(recipe: Recipe, tree: Tree) -> PortPlan | PortRefused | PortClean:
    """Plan the next part of the port; the class's file does not change."""
    source = read_worker(recipe, tree)
    shape = outline(source, recipe.source_class)
    if pairs := gated(shape, recipe):
        return PortClean(recipe, tuple(gate.name for gate, _ in pairs.values()))
    whole = cut_anew(recipe, tree, source.data)
    if isinstance(whole, CutRefused):
        return PortRefused(recipe, whole.refusals)
    if not isinstance(whole, CutPlan):
        return PortRefused(
            recipe, (Refusal("MG114", recipe.source_file, 0, "the slice was cut in one step already"),)
        )
    if missing := missing_by_hand(recipe, tree):
        return PortRefused(recipe, missing)
    if counting := [d.name for d in whole.proof.details if STUB_COUNTED in dict(d.rewrites)]:
        why = "stacklevel counts frames, and a gate adds others than the stub"
        return PortRefused(recipe, tuple(Refusal("MG116", name, 0, why) for name in counting))
    divided = Division(whole, tuple(select(shape, recipe)), source.data)
    handler = tree.read(recipe.target_file)
    done: tuple[str, ...] = ()
    if handler is not None:
        known = {d.moved_name: d.name for d in whole.proof.details}
        there = outline(Source(recipe.target_file, handler), recipe.handler_class).methods
        done = tuple(dict.fromkeys(known[m.name] for m in there if m.name in known))
        earlier = cut_anew(part_of(recipe, done), tree, source.data) if done else None
        if not isinstance(earlier, CutPlan):
            return PortRefused(
                recipe, (Refusal("MG103", recipe.target_file, 0, "it is not a part of this slice"),)
            )
        if found := drift(recipe, tree, earlier):
            return PortRefused(recipe, found)
        if set(done) == set(divided.labels):
            return PortClean(recipe, divided.labels)
    return _next(divided, tree, done)


def _next(divided: Division, tree: Tree, done: tuple[str, ...]) -> PortPlan | PortRefused:
    recipe = divided.recipe
    part = divided.next_part(tree, done)
    if not isinstance(part, Part):
        return PortRefused(recipe, part.refusals if isinstance(part, CutRefused) else ())
    if recipe.budget and part.added > recipe.budget:
        name = part.methods[0]
        message = f"{name} alone adds {part.added} lines, the budget is {recipe.budget}"
        return PortRefused(recipe, (Refusal("MG115", name, 0, message),))
    left = tuple(label for label in divided.labels if label not in (*done, *part.methods))
    last = (last_part(recipe.name, tree) or "a") if done else ""
    letter = next_letter(last) if done or left else ""
    return PortPlan(recipe, letter, part.methods, left, part.added, part.changes, part.plan)
