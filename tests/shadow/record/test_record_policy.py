"""The step policy under pressure, recorded; its plans asked of other trees; its runs compared."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from shadow.cli import main
from shadow.observation import Point
from shadow.record.policy_recorder import POLICY
from shadow.record.reader import open_record
from shadow.record.start import record_tree
from tests.shadow.record.test_record_real_worker import ROOT, requests_file, task
from tests.shadow.record.test_record_replay import reported, where

PRESSURE: dict[str, object] = {
    "model": "tiny",
    "policy": POLICY,
    "page_size": 4,
    "gpu_kv_pages": 30,
    "max_batch_size": 8,
}
VICTIMS = "batchgen/scheduler/victims.py"
RULE = "(rows[i].outputs, rows[i].slot_idx)"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree that parks the row with the higher slot on a tie."""
    tree = tmp_path_factory.mktemp("other")
    shutil.copytree(ROOT / "batchgen", tree / "batchgen", ignore=shutil.ignore_patterns("__pycache__"))
    source = (tree / VICTIMS).read_text()
    assert source.count(RULE) == 1
    (tree / VICTIMS).write_text(source.replace(RULE, "(rows[i].outputs, -rows[i].slot_idx)"))
    return tree


@pytest.fixture(scope="module")
def records(other: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(a run that requeues and spills, the same by the other tree)."""
    folder = tmp_path_factory.mktemp("records")
    requests = requests_file(folder / "requests.jsonl", count=8)
    paths = folder / "one", folder / "other"
    for tree, path in zip((ROOT, other), paths, strict=True):
        record_tree(task(tree, requests, path, options={**PRESSURE, "spill_dir": str(folder / "spill")}))
    return paths


def test_each_question_of_a_run_is_recorded_and_has_the_same_answer_again(
    records: tuple[Path, Path], tmp_path: Path
) -> None:
    record = open_record(records[0])
    points = Counter(chunk.point(i) for chunk in record.chunks() for i in range(len(chunk)))
    assert points[Point.DECODE] > 30 and points[Point.PLANNED] > 2 * points[Point.DECODE]
    report = reported(tmp_path, "replay", records[0], "--tree", ROOT)
    assert report.verdict.exit_code == 0
    assert report.tables[0].rows == (("policy", str(ROOT), f"{points[Point.PLANNED]:,}"),)


def test_a_planner_that_decides_otherwise_is_named(
    records: tuple[Path, Path], other: Path, tmp_path: Path
) -> None:
    report = reported(tmp_path, "replay", records[0], "--tree", other)
    assert report.verdict.exit_code == 1
    assert where(report)[-1] == "choose_decode_victim.index"


def test_two_runs_are_compared_step_by_step(records: tuple[Path, Path], tmp_path: Path) -> None:
    assert reported(tmp_path, "diff", records[0], records[0]).verdict.exit_code == 0
    report = reported(tmp_path, "diff", *records)
    assert report.verdict.exit_code == 1
    assert where(report)[1:] == ("-", "-", "plan.index")
    facts = {fact.name: fact.value for fact in report.facts}
    assert facts["legacy known defects"] == facts["candidate known defects"] == "none"


def test_a_run_without_a_tree_to_ask_is_refused(records: tuple[Path, Path], tmp_path: Path) -> None:
    report = reported(tmp_path, "replay", records[0])
    assert report.verdict.exit_code == 2
    assert "is a run of the step policy: give --tree" in report.verdict.headline


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--policy", "step", "--digests"], "--policy step records plans and steps only"),
        (["--spill-dir", "x"], "--spill-dir is for --policy step"),
    ],
)
def test_options_of_the_other_policy_are_refused(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = requests_file(tmp_path / "requests.jsonl", count=1)
    assert main(["record", "--requests", str(requests), "-o", str(tmp_path / "r"), *options]) == 64
    assert said in capsys.readouterr().err
