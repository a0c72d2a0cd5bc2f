"""The slice that ships with migrate, on the real worker of this repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from migration.code.tree import DiskTree
from migration.move.cut import CutClean, CutPlan, plan_cut
from migration.slices import load_recipe
from migration.survey.inventory import take_inventory
from pipeline.copies import copy_before, tree_before

ROOT = Path(__file__).parents[2]
RECIPE = load_recipe("kv")


@pytest.fixture(scope="module")
def plan() -> CutPlan:
    outcome = plan_cut(RECIPE, tree_before(ROOT))
    assert isinstance(outcome, CutPlan), outcome
    return outcome


@pytest.fixture(scope="module")
def ported(plan: CutPlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the engine after the cut."""
    root = copy_before(ROOT, tmp_path_factory.mktemp("ported"))
    for change in plan.changes:
        (root / change.path).parent.mkdir(exist_ok=True)
        (root / change.path).write_bytes(change.after)
    return root


def test_every_method_of_the_recipe_moves_and_no_entry_is_stale(plan: CutPlan):
    assert set(plan.methods) == set(RECIPE.methods) and plan.notes == ()
    assert [handle.spec.name for handle in plan.handles] == [handle.name for handle in RECIPE.handles]


def test_the_handler_imports_alone_and_the_worker_after_it(ported: Path):
    script = (
        "import sys, batchgen.worker.kv_manager as handler\n"
        "print(handler.__file__, 'batchgen.batchgen_worker' in sys.modules)\n"
        "from batchgen.batchgen_worker import KvNative\n"
        "print(issubclass(KvNative, handler.KVCacheManager))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ported), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ported,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [str(ported / "batchgen/worker/kv_manager.py"), "False", "True"]


def test_lines_leave_the_monolith_and_collectives_stay_there(plan: CutPlan, ported: Path):
    original, left = tree_before(ROOT).read(RECIPE.source_file), (ported / RECIPE.source_file).read_bytes()
    assert original is not None
    before = take_inventory("before", original, RECIPE.source_class)
    after = take_inventory("after", left, RECIPE.source_class)
    assert [m.name for m in after.methods] == [m.name for m in before.methods]
    moved = set(plan.methods)
    assert not any(m.collectives for m in before.methods if m.name in moved)
    assert not any(m.collectives or m.writes for m in after.methods if m.name in moved)
    assert original.count(b"\n") - left.count(b"\n") > 150


def test_the_ported_tree_is_clean(ported: Path):
    assert isinstance(plan_cut(RECIPE, DiskTree(ported)), CutClean)
