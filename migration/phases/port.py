"""`migrate port`: the handler beside the class, nothing wired; in parts when it is over its budget."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass

from migration.code.source import Source
from migration.code.structure import Method, outline
from migration.code.tree import Tree
from migration.errors import Refusal
from migration.ledger.change import FileChange
from migration.move.by_hand import missing_by_hand
from migration.move.cut import CutPlan, CutRefused, select
from migration.move.inverse import STUB_COUNTED
from migration.phases.gate_text import gated
from migration.phases.state import cut_anew, drift, read_worker
from migration.recipe import Recipe

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


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
    chosen = select(shape, recipe)
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
    labels = tuple(dict.fromkeys(m.name for m in chosen))
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
        if set(done) == set(labels):
            return PortClean(recipe, labels)
    left = [label for label in labels if label not in done]
    return _next(whole, tree, source, chosen, done, left)


def part_of(recipe: Recipe, labels: tuple[str, ...]) -> Recipe:
    """The recipe for some of its methods."""
    planned = {key: digest for key, digest in recipe.planned.items() if key.partition(".")[0] in labels}
    return dataclasses.replace(recipe, methods=labels, stays=(), planned=planned, partial=True)


def _next(
    whole: CutPlan,
    tree: Tree,
    source: Source,
    chosen: tuple[Method, ...],
    done: tuple[str, ...],
    left: list[str],
) -> PortPlan | PortRefused:
    """The longest run of methods whose lines fit the budget; at least one method. `whole` is the cut of all."""
    recipe = whole.recipe
    size = {label: sum(m.block_end - m.block_start + 2 for m in chosen if m.name == label) for label in left}
    count = len(left)
    if recipe.budget:
        count, total = 0, 0
        for label in left:
            total += size[label]
            if count and total > recipe.budget:
                break
            count += 1
    before = tree.read(recipe.target_file)
    while True:
        labels = (*done, *left[:count])
        is_whole = set(labels) == {m.name for m in chosen}
        plan = whole if is_whole else cut_anew(part_of(recipe, labels), tree, source.data)
        if not isinstance(plan, CutPlan):
            return PortRefused(recipe, plan.refusals if isinstance(plan, CutRefused) else ())
        others = [c for c in plan.changes if c.path != recipe.source_file]
        changes = tuple(dataclasses.replace(c, before=tree.read(c.path)) for c in others)
        added = sum(_added(change) for change in changes)
        if not recipe.budget or added <= recipe.budget or count == 1:
            break
        count -= 1
    if recipe.budget and added > recipe.budget:
        name = left[0]
        message = f"{name} alone adds {added} lines, the budget is {recipe.budget}"
        return PortRefused(recipe, (Refusal("MG115", name, 0, message),))
    rest = tuple(left[count:])
    first = before is None
    letter = "" if first and not rest else _LETTERS[_parts_before(recipe, done, size, chosen)]
    return PortPlan(recipe, letter, tuple(left[:count]), rest, added, changes, plan)


def _parts_before(
    recipe: Recipe, done: tuple[str, ...], size: dict[str, int], chosen: tuple[Method, ...]
) -> int:
    """How many parts were written before this one, judged by the lines of their methods."""
    lines = sum(m.block_end - m.block_start + 2 for m in chosen if m.name in done)
    return min(-(-lines // recipe.budget) if recipe.budget else 0, len(_LETTERS) - 1)


def _added(change: FileChange) -> int:
    """Lines that `git diff --numstat` would count as added."""
    old = (change.before or b"").split(b"\n")
    new = (change.after or b"").split(b"\n")
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return sum(
        end - start for kind, _, _, start, end in matcher.get_opcodes() if kind in ("insert", "replace")
    )
