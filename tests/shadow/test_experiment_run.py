"""Compare mode as it is used: `batchgen run` of the real worker with its KV slice gated, on and off alike."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from migration.code.tree import DiskTree
from migration.phases.gate import GateClean, GatePlan, plan_gate
from migration.phases.port import PortClean, PortPlan, plan_port
from migration.slices import load_recipe
from pipeline.copies import copy_before
from shadow.compare import compare_trees

ROOT = Path(__file__).parents[2]
PREFIX = "BATCHGEN_WORKER_KV"
ENGINE = ["--model", "tiny", "--device", "cpu", "--page-size", "4", "--gpu-pages", "24", "--host-pages", "60"]
ENGINE += ["--max-batch", "4", "--no-progress", "--json"]
# The harness ends a side without what is to be done at exit.
CLOSED_WITH_THE_WORKER = """
def _close_both(worker, _close=BatchGenWorker.close):
    _close(worker)
    _KV_GATE.close()
BatchGenWorker.close = _close_both
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the engine with the slice gated, its statistics as a part of their own."""
    root = copy_before(ROOT, tmp_path_factory.mktemp("gated"))
    statistics = ("_get_host_kv_free_pages", "_get_host_kv_utilization")
    recipe = replace(load_recipe("kv"), budget=0, parts=(("STATS", statistics),))
    for plan in (plan_port, plan_gate):
        outcome = plan(recipe, DiskTree(root))
        assert isinstance(outcome, PortPlan | PortClean | GatePlan | GateClean), outcome
        for change in getattr(outcome, "changes", ()):
            (root / change.path).parent.mkdir(exist_ok=True)
            (root / change.path).write_bytes(change.after)
    return root


def write_requests(path: Path, count: int) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for i in range(count):
            body = {"prompt": "some words " * (1 + i % 5), "max_tokens": 6 + i * 5 % 20}
            file.write(json.dumps({"custom_id": f"r{i}", "url": "/v1/completions", "body": body}) + "\n")
    return path


@dataclass(frozen=True)
class Run:
    code: int
    #: What batchgen itself said; the launcher adds a report of its own.
    said: list[str]
    results: list[str]
    summary: dict[str, Any]

    @property
    def counters(self) -> dict[str, Any]:
        return {name: n for name, n in self.summary["engine"].items() if not name.endswith("_seconds")}


def run(tree: Path, folder: Path, ranks: int = 1, of_rank: int | None = None, **flags: str) -> Run:
    """`of_rank`: the one rank that has the flags."""
    folder.mkdir()
    requests = write_requests(folder / "requests.jsonl", 10)
    program = ["-m", "batchgen"] if of_rank is None else ["-m", "tests.shadow.flags_of_one_rank"]
    if ranks > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        program = [*launcher, *program]
    env = {
        **os.environ,
        "PYTHONPATH": f"{tree}{os.pathsep}{ROOT}",
        "NUM_GPUS_PER_NODE": "1",
        "OMP_NUM_THREADS": "1",
        **({} if of_rank is None else {"OF_RANK": str(of_rank), "FLAGS": json.dumps(flags)}),
        **(flags if of_rank is None else {}),
    }
    done = subprocess.run(
        [sys.executable, *program, "run", str(requests), "-o", "results.jsonl", *ENGINE],
        capture_output=True,
        text=True,
        timeout=240,
        env=env,
        cwd=folder,
    )
    said = [line for line in done.stderr.splitlines() if line.startswith("batchgen: ")]
    results = (folder / "results.jsonl").read_text().splitlines()
    printed = done.stdout.strip().splitlines()
    return Run(done.returncode, said, results, json.loads(printed[-1]) if printed else {})


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=[pytest.mark.multirank, pytest.mark.slow])])
def test_compare_on_and_off_give_the_same_and_on_ends_with_one_verdict(
    tree: Path, tmp_path: Path, ranks: int
) -> None:
    off = run(tree, tmp_path / "off", ranks)
    on = run(tree, tmp_path / "on", ranks, BATCHGEN_WORKER_KV_COMPARE="1", BATCHGEN_WORKER_KV_BRANCHES="1")
    assert (off.code, on.code) == (0, 0), on.said
    assert len(off.results) == 10 and on.results == off.results
    assert on.counters == off.counters
    assert "compare_mode" not in off.summary and not (tmp_path / "off/out").exists()

    found = on.summary["compare_mode"]
    (report,) = found["reports"]
    assert found["verdict"] == "equal", on.said
    assert found["compared"] == found["calls"] > 0
    line = on.said[-1]
    assert line.startswith("batchgen: shadow: verdict 0 (equal)") and line.endswith(f"; report: {report}")
    assert f"{PREFIX}: {found['compared']} of {found['calls']} calls compared, 0 diverged, branches " in line
    assert len(on.said) == len(off.said) + 1

    (last,) = (json.loads(text) for text in (tmp_path / "on" / report).read_text().splitlines())
    compared = {name: count["compared"] for name, count in last["methods"].items()}
    reached = {"_release_gpu_kv_pages", "_get_sequence_token_budget", "_allocate_gpu_kv_two_page_buffer"}
    reached |= {"_decide_watermark_trigger", "_host_pages_kept_back", "_get_host_kv_utilization"}
    assert reached <= compared.keys() and all(compared.values())
    assert not compared.keys() & set(last["unreached"])


@pytest.mark.multirank
def test_a_flag_that_one_rank_alone_has_ends_all_with_one_line(tree: Path, tmp_path: Path) -> None:
    one = run(tree, tmp_path / "one", 2, of_rank=1, BATCHGEN_WORKER_KV_COMPARE="1")
    (said,) = [line for line in one.said if "differs" in line]
    assert said.startswith(
        f"batchgen: {PREFIX}_COMPARE differs between ranks: 0 on rank 0, 1 on rank 1. Set it alike"
    )
    assert one.code != 0 and one.results == []
    wrong = run(tree, tmp_path / "wrong", 2, of_rank=1, BATCHGEN_WORKER_KV_STATS_NATIVE="maybe")
    said = f"batchgen: {PREFIX}_STATS_NATIVE='maybe' is neither on (1, on, true, yes) nor off (0, off, false, no) "
    assert [line for line in wrong.said if "maybe" in line] == [said + "(on rank 1 of 2)"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("COMPARE", "maybe", f"{PREFIX}_COMPARE='maybe' is neither on (1, on, true, yes), off (0, off, false, no) nor"),
        ("STATS_COMPAR", "1", f"{PREFIX}_STATS_COMPAR is no variable of a gate; did you mean {PREFIX}_STATS_COMPARE?"),
    ],
)  # fmt: skip
def test_a_wrong_flag_is_refused_in_one_line_as_wrong_usage(
    tree: Path, tmp_path: Path, name: str, value: str, said: str
) -> None:
    done = run(tree, tmp_path / "run", **{f"{PREFIX}_{name}": value})
    assert done.code == 64 and done.results == []
    assert done.said[-1].startswith(f"batchgen: {said}") and len(done.said) == 2


def test_comparing_changes_nothing_that_the_harness_can_see(tree: Path, tmp_path: Path) -> None:
    """Not only results: logits, KV by position, page tables, pool operations and their order, step by step."""
    comparing, report = tmp_path / "comparing", tmp_path / "report.jsonl"
    shutil.copytree(tree, comparing)
    flags = {f"{PREFIX}_COMPARE": "1", f"{PREFIX}_REPORT": str(report)}
    with (comparing / "batchgen/batchgen_worker.py").open("a") as file:
        file.write(f"\n_KV_GATE.reload({flags})\n{CLOSED_WITH_THE_WORKER}")
    requests = write_requests(tmp_path / "requests.jsonl", 3)
    options = {"model": "tiny", "page_size": 4, "gpu_kv_pages": 24, "host_kv_pages": 60, "max_batch_size": 2}
    compared = compare_trees(tree, comparing, requests, options, threads=1, timeout=200)
    assert compared.verdict.exit_code == 0, compared
    assert all(check.count for check in compared.checks)
    last = json.loads(report.read_text().splitlines()[-1])
    counts = last["methods"].values()
    assert sum(count["compared"] for count in counts) > 20
    assert not any(count["diverged"] or count["faults"] for count in counts)
