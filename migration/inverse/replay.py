"""`migrate replay`: a recipe on a newer version of the class: unchanged, re-derived or in conflict, per method."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from migration.code.source import read_source
from migration.code.structure import ClassOutline, Method, outline
from migration.code.tree import Tree
from migration.errors import MigrationError, Refusal
from migration.move.cut import CutClean, CutOutcome, CutPlan, CutRefused, plan_cut, select
from migration.move.planned import body_hash, planned_key
from migration.recipe import Recipe

State = Literal["unchanged", "re-derived", "conflict"]


@dataclass(frozen=True)
class Replayed:
    """One method of the recipe on the newer class; `why` says what the conflict is, or what became of it."""

    name: str
    state: State
    line: int
    why: str


@dataclass(frozen=True)
class Replay:
    """`outcome` is the cut of every method that is not in conflict; None when there is no such method."""

    recipe: Recipe
    methods: tuple[Replayed, ...]
    outcome: CutOutcome | None

    def count(self, state: State) -> int:
        return sum(method.state == state for method in self.methods)


def plan_replay(recipe: Recipe, planned: Mapping[str, str], tree: Tree) -> Replay:
    """Replay `recipe` (whose source file is the newer one); `planned` are the bodies that it was written for."""
    if not planned:
        raise MigrationError(
            "MG401", f"slice {recipe.name} does not say what it was planned on ([planned.bodies])"
        )
    data = tree.read(recipe.source_file)
    if data is None:
        raise MigrationError("MG303", f"{recipe.source_file} does not exist")
    shape = outline(read_source(recipe.source_file, data), recipe.source_class)
    by_key = {planned_key(method): method for method in shape.methods}
    found: dict[str, Replayed] = {}
    for key, digest in planned.items():
        method = by_key.get(key)
        if method is None:
            found[key] = Replayed(key, "conflict", 0, _gone(shape, key, digest, set(planned)))
        elif body_hash(method.node) == digest:
            found[key] = Replayed(key, "unchanged", method.first_line, "")
        else:
            found[key] = Replayed(key, "re-derived", method.first_line, "its body is another")
    for method in _came(recipe, shape):
        if planned_key(method) not in planned:
            found[planned_key(method)] = Replayed(
                method.name, "re-derived", method.first_line, "it came under the banner"
            )
    return _cut(recipe, tree, found)


def _came(recipe: Recipe, shape: ClassOutline) -> tuple[Method, ...]:
    try:
        return select(shape, recipe) if not recipe.methods else ()
    except MigrationError:
        return ()  # the banner is gone; the methods are found by name


def _gone(shape: ClassOutline, key: str, digest: str, planned: set[str]) -> str:
    """Why a method is not there: renamed with the same body, or gone."""
    name = key.partition(".")[0]
    for method in shape.methods:
        if planned_key(method) in planned:
            continue
        node = copy.copy(method.node)
        node.name = name
        if body_hash(node) == digest:
            return f"it is called {method.name} now, with the same body (line {method.first_line})"
    return "there is no method of that name"


def _cut(recipe: Recipe, tree: Tree, found: dict[str, Replayed]) -> Replay:
    """Cut what can be cut; a refused method becomes a conflict."""
    outcome: CutOutcome | None = None
    for _ in range(len(found) + 1):
        labels = tuple(
            dict.fromkeys(key.partition(".")[0] for key, r in found.items() if r.state != "conflict")
        )
        if not labels:
            return Replay(recipe, tuple(found.values()), None)
        part = dataclasses.replace(recipe, methods=labels, stays=(), planned={}, partial=True)
        outcome = plan_cut(part, tree)
        if isinstance(outcome, CutPlan | CutClean):
            break
        blamed = _blamed(outcome, found)
        if not blamed:
            break
        for key, refusal in blamed.items():
            why = f"{refusal.code} {refusal.message}"
            found[key] = dataclasses.replace(found[key], state="conflict", why=why)
    return Replay(recipe, tuple(found.values()), outcome)


def _blamed(outcome: CutRefused, found: Mapping[str, Replayed]) -> dict[str, Refusal]:
    blamed: dict[str, Refusal] = {}
    for refusal in outcome.refusals:
        for key, replayed in found.items():
            if key.partition(".")[0] == refusal.where and replayed.state != "conflict":
                blamed.setdefault(key, refusal)
    return blamed
