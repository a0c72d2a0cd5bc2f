"""In-memory trees and a recipe for small workers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from migration.move.cut import CutOutcome, CutPlan, CutRefused, plan_cut
from migration.recipe import HandleSpec, Recipe

RECIPE = Recipe(
    name="cache",
    source_file="app/worker.py",
    source_class="Worker",
    section="Cache",
    target_file="app/parts/cache.py",
    handler_class="CacheManager",
    handles=(HandleSpec("worker", "WorkerView", "What the section needs from its worker.", (), True),),
    siblings="handler",
)


@dataclass(frozen=True)
class DictTree:
    files: Mapping[str, bytes]

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    def is_dir(self, path: str) -> bool:
        return any(name.startswith(f"{path}/") for name in self.files)

    def python_files(self) -> Iterator[str]:
        return iter(sorted(self.files))


def worker_source(methods: str, head: str = "", tail: str = "") -> bytes:
    """A worker whose Cache section holds `methods` (written with four spaces, stored with tabs)."""
    lines = [
        *head.splitlines(),
        "class Worker:",
        "    def __init__(self):",
        "        self.name = 'w'",
        "",
        "    # ============ Cache ============",
        "",
        *("    " + line if line.strip() else line for line in methods.strip("\n").splitlines()),
        *tail.splitlines(),
    ]
    return "".join(line.replace("    ", "\t") + "\n" for line in lines).encode()


def tree_of(worker: bytes, **files: str) -> DictTree:
    """The worker in a regular package; further files by path, `__` for `/` and without `.py`."""
    others = {f"{name.replace('__', '/')}.py": text.encode() for name, text in files.items()}
    return DictTree({"app/__init__.py": b"", "app/worker.py": worker, **others})


def codes(outcome: CutOutcome) -> list[str]:
    assert isinstance(outcome, CutRefused), outcome
    return [refusal.code for refusal in outcome.refusals]


def planned(worker: bytes, recipe: Recipe = RECIPE, **files: str) -> CutPlan:
    outcome = plan_cut(recipe, tree_of(worker, **files))
    assert isinstance(outcome, CutPlan), outcome
    return outcome


def result(plan: CutPlan, path: str) -> str:
    return next(change.after for change in plan.changes if change.path == path).decode()


def exercised(program: Path, folder: Path, **environment: str) -> str:
    """What `program` prints on the code in `folder`, without the names that only a gated class has."""
    run = subprocess.run(
        [sys.executable, str(program)],
        env={
            **os.environ,
            "PYTHONPATH": f"{folder}{os.pathsep}{Path(__file__).resolve().parents[2]}",
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return "".join(line for line in run.stdout.splitlines(keepends=True) if not line.startswith("_legacy_"))
