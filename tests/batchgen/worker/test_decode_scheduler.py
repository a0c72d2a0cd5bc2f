"""Slice 9 through its phases, on top of the slices that it needs: every route answers as the monolith does."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from migration.code.tree import DiskTree
from migration.move.cut import CutPlan, plan_cut
from migration.phases.port import PortPlan, plan_port
from migration.proofs.record import loads
from migration.proofs.verify import Verified, verify
from migration.recipe_checklist import PHASES
from migration.slices import load_recipe
from pipeline.config import load_config
from pipeline.copies import tree_before
from pipeline.stages import Stage, after, stages

from .slice_trees import ROOT, assert_whole, copied, copied_before
from .test_decode_slices import RECIPES, answers
from .test_multirank import write_requests

RECIPE = load_recipe("decode")
PREFIX = RECIPE.prefix


@pytest.fixture(scope="module")
def stack() -> list[Stage]:
    """Every phase of the slices that decoding needs, then each of its own; a part of its port is a stage."""
    slices = {one.recipe.name: one for one in load_config(ROOT).slices}
    tree, done = tree_before(ROOT), list[Stage]()
    for name in (*RECIPES, RECIPE.name):
        done += stages(slices[name], PHASES, after(tree, done))
    return done


@pytest.fixture(scope="module")
def trees(stack: list[Stage], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The repository after each phase of the slice."""
    made = {"base": copied_before(tmp_path_factory.mktemp("base"))}
    for stage in stack:
        if stage.recipe.name != RECIPE.name:
            write(made["base"], stage)
    for phase, before in (("port", "base"), ("gate", "port"), ("cleanup", "gate")):
        made[phase] = copied(made[before], tmp_path_factory.mktemp(phase))
        for stage in of_slice(stack, phase):
            write(made[phase], stage)
        assert_whole(RECIPE, made[phase])
    return made


def of_slice(stack: list[Stage], phase: str) -> list[Stage]:
    return [stage for stage in stack if (stage.recipe.name, stage.phase) == (RECIPE.name, phase)]


def write(tree: Path, stage: Stage) -> None:
    for change in stage.changes:
        assert change.after is not None
        (tree / change.path).parent.mkdir(exist_ok=True)
        (tree / change.path).write_bytes(change.after)


def test_the_loop_moves_behind_what_the_seed_names() -> None:
    plan = plan_cut(RECIPE, tree_before(ROOT))
    assert isinstance(plan, CutPlan), plan
    assert set(plan.methods) == set(RECIPE.methods) and plan.notes == ()
    assert [handle.spec.name for handle in plan.handles] == ["executor", "sync", "req"]


@pytest.mark.slow
def test_the_port_goes_in_parts_of_which_each_is_whole(
    tmp_path: Path, stack: list[Stage], trees: dict[str, Path]
) -> None:
    tree, parts = copied(trees["base"], tmp_path / "tree"), of_slice(stack, "port")
    lines = 0
    for part in parts:
        write(tree, part)
        assert_whole(RECIPE, tree)
        before, lines = lines, len((tree / RECIPE.target_file).read_text().splitlines())
        assert 0 < lines - before <= RECIPE.budget
        alone = "import batchgen.worker.decode, sys; print('batchgen.batchgen_worker' in sys.modules)"
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        said = subprocess.run(
            [sys.executable, "-c", alone],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert said.stdout == "False\n"
    assert [part.label for part in parts] == ["9.1a", "9.1b", "9.1c", "9.1d"]
    at_once = plan_port(dataclasses.replace(RECIPE, budget=0), DiskTree(trees["base"]))
    assert isinstance(at_once, PortPlan)
    handler = next(change.after for change in at_once.changes if change.path == RECIPE.target_file)
    assert (tree / RECIPE.target_file).read_bytes() == handler


@pytest.mark.slow
def test_the_worker_is_left_with_what_others_ask_it_for(trees: dict[str, Path]) -> None:
    worker = (trees["cleanup"] / RECIPE.source_file).read_text()
    assert "_legacy_" not in worker and "Gate(" not in worker
    before = tree_before(ROOT).read(RECIPE.source_file)
    assert before is not None and len(worker.splitlines()) <= 0.65 * len(before.splitlines())
    for method in RECIPE.methods:
        body = worker.partition(f"\tdef {method}(")[2].partition("\n\tdef ")[0]
        assert not body or f"DecodeScheduler.for_worker(self).{method}(" in body
    proof = loads((trees["cleanup"] / f".migrate/{RECIPE.name}.proof.json").read_bytes(), RECIPE.name)
    (verdict,) = verify(DiskTree(trees["cleanup"]), [proof])
    assert isinstance(verdict, Verified) and verdict.share is not None
    assert verdict.share.added == 0


@pytest.mark.slow
@pytest.mark.multirank
@pytest.mark.parametrize(("model", "ranks"), [("tiny", 1), ("tiny", 2), ("tiny-dual", 1), ("tiny-dual", 2)])
def test_every_route_answers_as_the_monolith_did(
    model: str, ranks: int, trees: dict[str, Path], tmp_path: Path
) -> None:
    requests = tmp_path / "requests.jsonl"
    write_requests(requests, 16)
    requests.write_text(requests.read_text().replace("tiny-dual", model))
    expected, monolith = answers(ROOT, requests, tmp_path / "monolith.jsonl", model, ranks)
    assert len(expected) == 16 and monolith["holds"] > 0 and monolith["graph_steps"] > 0
    # 5 % of the sequences are compared here, all of them in the test below.
    compared = {f"{PREFIX}_COMPARE": "0.05"}
    for name, tree, flags in (
        ("off", "gate", {}),
        ("native", "gate", {f"{PREFIX}_NATIVE": "1"}),
        ("compare", "gate", compared),
        ("cleaned", "cleanup", {}),
    ):
        output = tmp_path / f"{name}.jsonl"
        assert answers(trees[tree], requests, output, model, ranks, **flags) == (expected, monolith), name


def workload(tree: Path, model: str, report: Path | None = None) -> tuple[Any, list[dict[str, Any]]]:
    """(what `decode_workload` prints, the records of the gate)."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "BATCHGEN_DECODE_ASSERT": "1",
        "OMP_NUM_THREADS": "1",
    }
    if report is not None:
        environment |= {f"{PREFIX}_COMPARE": "1", f"{PREFIX}_REPORT": str(report)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.batchgen.worker.decode_workload", model],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    records = [] if report is None else [json.loads(line) for line in report.read_text().splitlines()]
    return json.loads(done.stdout.splitlines()[0]), records


@pytest.mark.slow
def test_every_gated_method_is_compared_and_comparing_changes_nothing(
    trees: dict[str, Path], tmp_path: Path
) -> None:
    compared: dict[str, int] = dict.fromkeys(RECIPE.methods, 0)
    for model in ("tiny", "tiny-dual"):
        expected, _ = workload(ROOT, model)
        assert all(expected["counters"][name] for name in ("holds", "reloads", "evictions", "async_loads"))
        found, records = workload(trees["gate"], model, tmp_path / f"{model}.jsonl")
        assert found == expected
        (summary,) = [record for record in records if record["record"] == "summary"]
        assert len(records) == 1, records
        for name, counts in summary["methods"].items():
            assert counts["diverged"] == counts["faults"] == 0, (name, counts)
            compared[name] += counts["compared"]
    assert min(compared.values()) > 0, compared


FAULTS = {
    "step": ('logits = outputs["logits"][:', 'logits = outputs["logits"].neg()[:'),
    "_bind_decode_attention_metadata": ("position_ids.add_(1)", "position_ids.add_(2)"),
    "_compute_boundary_decisions": (
        "rank_free = dict(per_rank_free)",
        "rank_free = dict.fromkeys(per_rank_free, 99)",
    ),
    "_decode_begin_deferred_kv": (
        "seq.current_context_length - 1 for seq",
        "seq.current_context_length for seq",
    ),
    "_unbind_attn_wrapper": ("AttnWrapperBase.kv_append_callback = None", "pass"),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", FAULTS)
def test_a_fault_of_the_handler_is_found_and_never_served(
    method: str, trees: dict[str, Path], tmp_path: Path
) -> None:
    tree = copied(trees["gate"], tmp_path / "tree")
    handler, (good, bad) = tree / RECIPE.target_file, FAULTS[method]
    text = handler.read_text()
    assert text.count(good) == 1
    handler.write_text(text.replace(good, bad))
    expected, _ = workload(ROOT, "tiny")
    found, records = workload(tree, "tiny", tmp_path / "report.jsonl")
    assert found == expected
    assert method in {record.get("method") for record in records}


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["port", "gate", "cleanup"])
def test_every_line_of_the_checklist_holds(phase: str, trees: dict[str, Path]) -> None:
    body = checked(trees[phase])
    assert (body["phase"], body["findings"]) == (phase, [])
    recipe = tomllib.loads((ROOT / "migration/slices/decode.toml").read_text())
    titles = {item["title"] for item in recipe["checklist"]["items"]}
    assert len(titles) == 6 and titles <= {line["title"] for line in body["checks"]}


def checked(tree: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", CHECK, "check", RECIPE.name, "--repo", str(tree), "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    body: dict[str, Any] = json.loads(done.stdout)
    return body


CHECK = "from migration.cli import main; main()"
COUNTS = "self._executor.parallel.set_rank_token_counts(rank_counts)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        ("MG610", "model = self._executor.model", "model = self._req.model"),
        ("MG615", ", DualKVCacheCoordinator\n", "\n"),
        ("MG620", "        self._req.model = model\n", ""),
        ("MG617", COUNTS, f'hasattr(self._req, "parallel_manager") and {COUNTS}'),
        ("MG619", "self._executor.rebalancer.put_on_hold(", "self._req._put_sequences_on_hold("),
        (
            "MG621",
            "executor: ModelExecutorBackend, sync",
            "executor: ModelExecutorBackend, worker: Any, sync",
        ),
    ],
)
def test_a_line_of_the_checklist_sees_the_edit_that_it_is_there_for(
    code: str, old: str, new: str, trees: dict[str, Path], tmp_path: Path
) -> None:
    tree = copied(trees["gate"], tmp_path / "tree")
    handler = tree / RECIPE.target_file
    text = handler.read_text()
    assert text.count(old) == 1
    handler.write_text(text.replace(old, new))
    assert code in {finding["code"] for finding in checked(tree)["findings"]}
