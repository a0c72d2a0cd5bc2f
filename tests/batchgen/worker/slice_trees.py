"""Copies of this repository in which slices have gone through their phases, as `migrate` leaves them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from migration.code.tree import DiskTree
from migration.proofs.record import loads
from migration.proofs.verify import Verified, verify
from migration.recipe import Recipe
from pipeline.copies import copy_before

ROOT = Path(__file__).parents[3]


def migrate(phase: str, name: str, tree: Path) -> str:
    """What the command said; AssertionError where it refused."""
    done = subprocess.run(
        [sys.executable, "-c", "from migration.cli import main; main()", phase, name, "--repo", str(tree)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copied_before(tree: Path) -> Path:
    """This repository with the worker as it was before its slices."""
    return copy_before(ROOT, tree, ("batchgen", "shadow", "tests"))


def copied(source: Path, tree: Path) -> Path:
    for name in ("batchgen", "shadow", "tests", ".migrate"):
        if (source / name).is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "undo")
            shutil.copytree(source / name, tree / name, ignore=ignore)
    return tree


def assert_whole(recipe: Recipe, tree: Path) -> None:
    """Both files compile, and the proof holds."""
    for path in (recipe.source_file, recipe.target_file):
        compile((tree / path).read_bytes(), path, "exec")
    proof = loads((tree / f".migrate/{recipe.name}.proof.json").read_bytes(), recipe.name)
    (verdict,) = verify(DiskTree(tree), [proof])
    assert isinstance(verdict, Verified), verdict


def landed(recipe: Recipe, tree: Path) -> None:
    """Port, gate and cleanup, each whole."""
    for phase in ("port", "gate", "cleanup"):
        migrate(phase, recipe.name, tree)
        assert_whole(recipe, tree)
