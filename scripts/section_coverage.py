"""Which lines of the slices, and of the sections that they come from, no test ran; fails below the floor.

    coverage run -m pytest ... && coverage combine && python scripts/section_coverage.py

A line that no test runs is a line whose move nothing checks. A method of a slice is looked for where it is at work: its
legacy body behind a gate, the handler once the slice is cleaned up, else the worker. The rest of a section is what
stays.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import coverage

from migration.code.source import Source
from migration.code.structure import outline
from migration.move.others import LEGACY
from migration.recipe import Recipe
from pipeline.config import load_config

ROOT = Path(__file__).resolve().parent.parent
WORKER = ROOT / "batchgen" / "batchgen_worker.py"
CLASS = "BatchGenWorker"
SECTIONS = ("KV Cache Helper Methods", "RANK-0 BOUNDARY DECISION COMPUTATION")


def live_methods(source: str, name: str = CLASS) -> list[ast.FunctionDef]:
    """Methods of the class in file order, without those that a later definition shadows."""
    tree = ast.parse(source)
    worker = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    methods = [n for n in worker.body if isinstance(n, ast.FunctionDef)]
    last = {method.name: method for method in methods}
    return [method for method in methods if last[method.name] is method]


@cache
def methods_in(path: Path, name: str) -> dict[str, ast.FunctionDef]:
    """The live methods of a class by name; none where the file is not there."""
    if not path.is_file():
        return {}
    return {method.name: method for method in live_methods(path.read_text(encoding="utf-8"), name)}


def bodies(recipe: Recipe) -> Iterator[tuple[Path, ast.FunctionDef]]:
    """(file, method) for every method of a slice, where it is at work."""
    worker, path = methods_in(WORKER, CLASS), ROOT / recipe.target_file
    handler = methods_in(path, recipe.handler_class)
    served = recipe.served[1] in WORKER.read_text(encoding="utf-8")
    for name in recipe.methods:
        if legacy := worker.get(f"{LEGACY}{name}"):
            yield WORKER, legacy
        elif served:
            yield path, handler[name]
        else:
            yield WORKER, worker[name]


def staying(section: str, moved: set[str]) -> Iterator[tuple[Path, ast.FunctionDef]]:
    """(file, method) for what no slice takes out of a section."""
    shape = outline(Source(str(WORKER), WORKER.read_bytes()), CLASS)
    for part in shape.sections:
        for method in part.methods if part.title == section else ():
            if method.name not in moved and not method.name.startswith(LEGACY):
                yield WORKER, methods_in(WORKER, CLASS)[method.name]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--floor", type=float, default=95.0, help="least percentage of statements run, per part"
    )
    options = parser.parse_args()
    data = coverage.Coverage()
    data.load()
    recipes = [one.recipe for one in load_config(ROOT).slices]
    parts = {f"slice {recipe.name}": list(bodies(recipe)) for recipe in recipes}
    moved = {name for recipe in recipes for name in recipe.methods}
    parts |= {f"what stays of {section}": list(staying(section, moved)) for section in SECTIONS}
    lines = cache(lambda path: data.analysis2(str(path)))
    failed = False
    for title, methods in parts.items():
        relevant, missed = 0, []
        for path, method in methods:
            _, statements, _, missing, _ = lines(path)
            inside = range(method.lineno, (method.end_lineno or method.lineno) + 1)
            relevant += sum(line in inside for line in statements)
            missed += [
                f"{path.relative_to(ROOT)}:{line} in {method.name}" for line in missing if line in inside
            ]
        if not relevant:
            print(f"{title}: nothing there")
            continue
        percent = 100.0 * (relevant - len(missed)) / relevant
        print(f"{title}: {percent:.1f} % of {relevant} statements ran")
        for line in missed:
            print(f"  {line}")
        failed |= percent < options.floor
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
