"""The golden folders of two slices in one class: before/, gated/ (both), after/ (both cleaned up).

`python -m tests.migration.two_golden` writes gated/ and after/ anew, to be read and committed.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

from migration.code.tree import DiskTree, OverlayTree, Tree
from migration.phases.cleanup import CleanupPlan, plan_cleanup
from migration.phases.gate import GatePlan, plan_gate
from migration.phases.port import PortPlan, plan_port
from migration.recipe import Recipe, parse_recipe

GOLDEN = Path(__file__).with_name("golden_two")
NAMES = ("pages", "plans")
RECIPES = {name: parse_recipe((GOLDEN / f"{name}.toml").read_text("utf-8"), name) for name in NAMES}
FILES = ("app/worker.py", *(recipe.target_file for recipe in RECIPES.values()))
_PHASES = (plan_port, plan_gate, plan_cleanup)

#: (slice, phase) in the order in which they happen.
Order = tuple[tuple[Recipe, int], ...]
#: How many phases each slice has behind it.
State = tuple[int, ...]


def orders(recipes: tuple[Recipe, ...]) -> list[Order]:
    """Every order in which the three phases of each slice can land."""
    found = dict.fromkeys(itertools.permutations([recipe for recipe in recipes for _ in _PHASES]))
    return [tuple((one, order[:n].count(one)) for n, one in enumerate(order)) for order in found]


def landed(tree: Tree, order: Order) -> Iterator[tuple[State, Tree]]:
    """The tree after each phase."""
    recipes = list(dict.fromkeys(recipe for recipe, _ in order))
    recipes.sort(key=lambda recipe: recipe.name)
    done = dict.fromkeys((recipe.name for recipe in recipes), 0)
    for recipe, phase in order:
        outcome = _PHASES[phase](recipe, tree)
        assert isinstance(outcome, PortPlan | GatePlan | CleanupPlan), outcome
        tree = OverlayTree(tree, {change.path: change.after for change in outcome.changes})
        done[recipe.name] += 1
        yield tuple(done.values()), tree


def contents(tree: Tree) -> dict[str, bytes | None]:
    return {path: tree.read(path) for path in FILES}


def main() -> None:
    pages, plans = RECIPES.values()
    order = tuple((recipe, phase) for phase in range(3) for recipe in (pages, plans))
    for state, tree in landed(DiskTree(GOLDEN / "before"), order):
        if folder := {(2, 2): "gated", (3, 3): "after"}.get(state):
            shutil.rmtree(GOLDEN / folder, ignore_errors=True)
            shutil.copytree(GOLDEN / "before", GOLDEN / folder)
            (GOLDEN / folder / "app/parts").mkdir()
            for path, data in contents(tree).items():
                (GOLDEN / folder / path).write_bytes(data or b"")


if __name__ == "__main__":
    main()
