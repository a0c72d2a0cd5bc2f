"""The slices that decoding needs before it moves itself: sync, rebalance, executor, each ported, gated, cleaned up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from migration.move.cut import CutPlan, plan_cut
from migration.recipe import Recipe
from migration.slices import load_recipe
from pipeline.copies import tree_before

from .slice_trees import ROOT, copied_before, landed
from .test_multirank import write_requests

RECIPES = {name: load_recipe(name) for name in ("sync", "rebalance", "executor")}
# Few pages, so that sequences are held, extended and, on two nodes, moved.
SMALL = ["--device", "cpu", "--page-size", "4", "--row-exact", "--json"]
SMALL += ["--gpu-pages", "24", "--host-pages", "60", "--max-batch", "4"]


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree after all three phases of all three slices, each of which verified when it was written."""
    tree = copied_before(tmp_path_factory.mktemp("decode-slices"))
    for recipe in RECIPES.values():
        landed(recipe, tree)
    return tree


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_every_method_moves_behind_handles_that_name_what_they_show(recipe: Recipe) -> None:
    plan = plan_cut(recipe, tree_before(ROOT))
    assert isinstance(plan, CutPlan), plan
    assert set(plan.methods) == set(recipe.methods) and plan.notes == ()
    named = [handle.name for handle in recipe.handles if not handle.rest]
    assert [handle.spec.name for handle in plan.handles] == named


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_the_worker_only_asks_the_handlers(recipe: Recipe, cleaned: Path) -> None:
    worker = (cleaned / recipe.source_file).read_text()
    assert "_legacy_" not in worker and "Gate(" not in worker
    for method in recipe.methods:
        assert f"    def {method}(" in (cleaned / recipe.target_file).read_text()
        body = worker.partition(f"\tdef {method}(")[2].partition("\n\tdef ")[0]
        assert not body or f"{recipe.handler_class}.for_worker(self).{method}(" in body


def run(tree: Path, requests: Path, output: Path, model: str, ranks: int) -> tuple[dict[str, Any], Any]:
    """(output line by custom_id, the engine's counters) of one `batchgen run` on the code in `tree`."""
    launcher = [sys.executable, "-m"]
    if ranks > 1:
        launcher += ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m"]
    done = subprocess.run(
        [*launcher, "batchgen", "run", str(requests), "-o", str(output), "--model", model, *SMALL],
        cwd=tree,
        env={
            **os.environ,
            "PYTHONPATH": str(tree),
            "NUM_GPUS_PER_NODE": "1",
            "BATCHGEN_DECODE_ASSERT": "1",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {json.loads(line)["custom_id"]: json.loads(line) for line in output.read_text().splitlines()}
    return lines, json.loads(done.stdout.strip().splitlines()[-1])["engine"]


@pytest.mark.slow
@pytest.mark.multirank
@pytest.mark.parametrize(("model", "ranks"), [("tiny", 1), ("tiny-dual", 2)])
def test_what_is_left_answers_as_the_monolith_did(
    model: str, ranks: int, cleaned: Path, tmp_path: Path
) -> None:
    requests = tmp_path / "requests.jsonl"
    write_requests(requests, 24)
    requests.write_text(requests.read_text().replace("tiny-dual", model))
    expected, counted = run(ROOT, requests, tmp_path / "monolith.jsonl", model, ranks)
    answered, counters = run(cleaned, requests, tmp_path / "slices.jsonl", model, ranks)
    assert answered == expected and len(answered) == 24
    wall_clock = {name for name in counters if name.endswith("_seconds")}
    assert {n: counters[n] for n in counters.keys() - wall_clock} == {
        n: counted[n] for n in counted.keys() - wall_clock
    }
    assert counters["holds"] > 0 and counters["graph_steps"] > 0
    assert ranks == 1 or counters["migrations"] > 0
