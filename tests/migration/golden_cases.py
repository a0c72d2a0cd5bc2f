"""The golden folders: <case>/slice.toml, before/, after/ (files of the tree after the cut), exercise.py.

`python tests/migration/golden_cases.py CASE ...` writes the after/ folder anew, to be read and committed.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from migration.code.tree import DiskTree
from migration.move.cut import CutOutcome, CutPlan, plan_cut
from migration.recipe import Recipe, parse_recipe

GOLDEN = Path(__file__).with_name("golden")


def recipe_of(case: str) -> Recipe:
    return parse_recipe((GOLDEN / case / "slice.toml").read_text(encoding="utf-8"), case)


def cut(case: str) -> CutOutcome:
    return plan_cut(recipe_of(case), DiskTree(GOLDEN / case / "before"))


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*.py"))
        if "__pycache__" not in path.parts
    }


def apply(outcome: CutPlan, before: Path, target: Path) -> None:
    """A copy of `before` in `target` with the changes of the plan."""
    shutil.copytree(before, target, ignore=shutil.ignore_patterns("__pycache__"))
    for change in outcome.changes:
        path = target / change.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(change.after)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        outcome = cut(name)
        assert isinstance(outcome, CutPlan), outcome
        shutil.rmtree(GOLDEN / name / "after", ignore_errors=True)
        apply(outcome, GOLDEN / name / "before", GOLDEN / name / "after")
