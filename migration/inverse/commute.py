"""`migrate commute`: can two slices land in either order, byte for byte?"""

from __future__ import annotations

from dataclasses import dataclass

from migration.code.source import read_source
from migration.code.structure import outline
from migration.code.tree import OverlayTree, Tree
from migration.errors import Refusal
from migration.ledger.change import FileChange
from migration.move.cut import CutOutcome, CutPlan, CutRefused, is_stub, plan_cut
from migration.phases.state import before_cut, read_worker, ungated
from migration.recipe import Recipe


@dataclass(frozen=True)
class Commute:
    """Both orders give the same files."""

    files: tuple[str, ...]


@dataclass(frozen=True)
class Ordered:
    """Only one order works, or the two give other files; `reasons` say which and where they part."""

    order: tuple[str, str] | None
    reasons: tuple[str, ...]


def commute(first: Recipe, second: Recipe, tree: Tree) -> Commute | Ordered:
    """Plan both orders in memory and compare every file of the result. A slice that is ported or gated counts
    as one that is not: its legacy bodies are there."""
    tree = _unported(second, _unported(first, tree))
    ab, why_ab = _both(first, second, tree)
    ba, why_ba = _both(second, first, tree)
    if ab is None or ba is None:
        order = None
        if ab is not None:
            order = (first.name, second.name)
        elif ba is not None:
            order = (second.name, first.name)
        return Ordered(order, (*why_ab, *why_ba))
    differing = sorted(path for path in ab.keys() | ba.keys() if ab.get(path) != ba.get(path))
    if differing:
        return Ordered(None, tuple(_parting(path, ab.get(path), ba.get(path)) for path in differing))
    return Commute(tuple(sorted(ab)))


def _unported(recipe: Recipe, tree: Tree) -> Tree:
    whole = ungated(recipe, read_worker(recipe, tree))
    shape = outline(read_source(recipe.source_file, whole), recipe.source_class)
    if any(is_stub(method, recipe) for method in shape.methods):
        return tree
    return OverlayTree(before_cut(recipe, tree), {recipe.source_file: whole})


def _both(one: Recipe, other: Recipe, tree: Tree) -> tuple[dict[str, bytes] | None, tuple[str, ...]]:
    outcome = plan_cut(one, tree)
    if not isinstance(outcome, CutPlan):
        return None, _reasons(one, "", outcome)
    files = _files(outcome.changes)
    then = plan_cut(other, OverlayTree(tree, files))
    if not isinstance(then, CutPlan):
        return None, _reasons(other, f" after {one.name}", then)
    return files | _files(then.changes), ()


def _files(changes: tuple[FileChange, ...]) -> dict[str, bytes]:
    return {change.path: change.after for change in changes if change.after is not None}


def _reasons(recipe: Recipe, when: str, outcome: CutOutcome) -> tuple[str, ...]:
    if isinstance(outcome, CutRefused):
        return tuple(f"{recipe.name}{when}: {_shown(refusal)}" for refusal in outcome.refusals)
    return (f"{recipe.name}{when}: it is cut already",)


def _shown(refusal: Refusal) -> str:
    return f"{refusal.code} {refusal.where}:{refusal.line} {refusal.message}"


def _parting(path: str, one: bytes | None, other: bytes | None) -> str:
    if one is None or other is None:
        return f"{path} exists in one order only"
    lines = zip(one.split(b"\n"), other.split(b"\n"), strict=False)
    number = next(
        (n for n, (a, b) in enumerate(lines, 1) if a != b), min(one.count(b"\n"), other.count(b"\n"))
    )
    return f"{path}:{number} differs between the two orders"
