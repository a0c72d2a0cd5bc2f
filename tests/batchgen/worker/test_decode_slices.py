"""The slices that decoding needs before it moves itself: sync, rebalance, executor, each ported, gated, cleaned up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from migration.move.cut import CutPlan, plan_cut
from migration.recipe import Recipe
from migration.slices import load_recipe
from pipeline.copies import tree_before

from .launched import counted, results, run
from .slice_trees import ROOT, copied_before, landed
from .test_multirank import write_requests

RECIPES = {name: load_recipe(name) for name in ("sync", "rebalance", "executor")}
# Few pages, so that sequences are held, extended and, on two nodes, moved.
SMALL = ["--page-size", "4", "--row-exact"]
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


def answers(
    tree: Path, requests: Path, output: Path, model: str, ranks: int, **environment: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(output line by custom_id, the engine's counters) of one `batchgen run` on the code in `tree`."""
    environment["BATCHGEN_DECODE_ASSERT"] = "1"
    summary = run(requests, output, "--model", model, *SMALL, tree=tree, ranks=ranks, **environment)
    return results(output), counted(summary)


@pytest.mark.slow
@pytest.mark.multirank
@pytest.mark.parametrize(("model", "ranks"), [("tiny", 1), ("tiny-dual", 2)])
def test_what_is_left_answers_as_the_monolith_did(
    model: str, ranks: int, cleaned: Path, tmp_path: Path
) -> None:
    requests = tmp_path / "requests.jsonl"
    write_requests(requests, 24)
    requests.write_text(requests.read_text().replace("tiny-dual", model))
    expected, monolith = answers(ROOT, requests, tmp_path / "monolith.jsonl", model, ranks)
    answered, counters = answers(cleaned, requests, tmp_path / "slices.jsonl", model, ranks)
    assert answered == expected and len(answered) == 24
    assert counters == monolith
    assert counters["holds"] > 0 and counters["graph_steps"] > 0
    assert ranks == 1 or counters["migrations"] > 0
