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
from pathlib import Path

import coverage

from migration.code.source import Source
from migration.code.structure import outline
from migration.recipe import Recipe
from migration.slices import load_recipe

ROOT = Path(__file__).resolve().parent.parent
WORKER = ROOT / "batchgen" / "batchgen_worker.py"
SLICES = ("sync", "executor", "rebalance", "kv", "decode")
SECTIONS = ("KV Cache Helper Methods", "RANK-0 BOUNDARY DECISION COMPUTATION")
LEGACY = "_legacy_"


def live_methods(source: str, name: str = "BatchGenWorker") -> list[ast.FunctionDef]:
    """Methods of the class in file order, without those that a later definition shadows."""
    tree = ast.parse(source)
    worker = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    methods = [n for n in worker.body if isinstance(n, ast.FunctionDef)]
    last = {method.name: method for method in methods}
    return [method for method in methods if last[method.name] is method]


def bodies(recipe: Recipe) -> Iterator[tuple[Path, ast.FunctionDef]]:
    """(file, method) for every method of a slice, where it is at work."""
    worker = {method.name: method for method in live_methods(WORKER.read_text(encoding="utf-8"))}
    path = ROOT / recipe.target_file
    handler = {}
    if path.is_file():
        handler = {m.name: m for m in live_methods(path.read_text(encoding="utf-8"), recipe.handler_class)}
    for name in recipe.methods:
        if legacy := worker.get(f"{LEGACY}{name}"):
            yield WORKER, legacy
        elif recipe.served[1] in WORKER.read_text(encoding="utf-8"):
            yield path, handler[name]
        else:
            yield WORKER, worker[name]


def staying(section: str, moved: set[str]) -> Iterator[tuple[Path, ast.FunctionDef]]:
    """(file, method) for what no slice takes out of a section."""
    methods = {method.name: method for method in live_methods(WORKER.read_text(encoding="utf-8"))}
    shape = outline(Source(str(WORKER), WORKER.read_bytes()), "BatchGenWorker")
    for part in shape.sections:
        for method in part.methods if part.title == section else ():
            if method.name not in moved and not method.name.startswith(LEGACY):
                yield WORKER, methods[method.name]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--floor", type=float, default=95.0, help="least percentage of statements run, per part"
    )
    options = parser.parse_args()
    data = coverage.Coverage()
    data.load()
    known = {path.stem for path in (ROOT / "migration" / "slices").glob("*.toml")}
    recipes = [load_recipe(name) for name in SLICES if name in known]
    parts = {f"slice {recipe.name}": list(bodies(recipe)) for recipe in recipes}
    moved = {name for recipe in recipes for name in recipe.methods}
    parts |= {f"what stays of {section}": list(staying(section, moved)) for section in SECTIONS}
    failed = False
    for title, methods in parts.items():
        relevant, missed = 0, []
        for path, method in methods:
            _, statements, _, missing, _ = data.analysis2(str(path))
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
