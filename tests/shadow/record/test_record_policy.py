"""The step policy under pressure, recorded; its plans asked of other trees; its runs compared."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from reports import Report
from shadow.cli import main
from shadow.observation import Event, Key, Kind, Point
from shadow.record.defects import explain, known_defects
from shadow.record.policy_recorder import POLICY
from shadow.record.reader import Record, open_record
from shadow.record.report import defects_report
from shadow.record.start import record_tree
from tests.shadow.record.streams import written
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


@pytest.mark.slow
def test_the_defect_that_explains_a_difference_is_named(tmp_path: Path) -> None:
    """Rows that come back without a page to grow into run out of pages again at once."""
    requests = requests_file(tmp_path / "requests.jsonl", count=8)
    engine = ("--model", "tiny", "--page-size", 4, "--gpu-pages", 30, "--max-batch", 8, "--threads", 1)
    report = reported(tmp_path, "quirks", "--requests", requests, "--spill", *engine)
    assert report.verdict.headline.endswith("; explained by swap_in_without_growth")
    rows = {row[0]: row[1:] for row in report.tables[0].rows}
    assert rows["swap_in_without_growth"][1] == "yes" and rows["grammar_accepts_twice"] == ("nothing", "")


def explained(
    tmp_path: Path, effects: Mapping[tuple[str, ...], Mapping[int, str]], steps: int = 10
) -> Report:
    """Of runs whose outcomes, with these defects on, are those at these steps."""

    def record(on: tuple[str, ...]) -> Record:
        changed = effects.get(on, {})
        events = [
            Event(Point.DECODE, step, {Key(Kind.POLICY, None, "outcome"): changed.get(step, "stepped")})
            for step in range(steps)
        ]
        return open_record(written(tmp_path / ("-".join(on) or "none"), events))

    return defects_report(explain(("e", "f", "g"), record), "tree", 0.0)


def test_only_a_defect_that_does_the_same_at_the_same_place_explains(tmp_path: Path) -> None:
    together = {4: "failed", 6: "empty"}
    report = explained(tmp_path, {("e", "f", "g"): together, ("e",): {6: "empty"}, ("g",): {4: "failed"}})
    assert report.verdict.headline == "Diverged at step 4, field outcome; explained by g"
    assert report.tables[0].rows == (
        ("e", "step 6, field outcome", ""),
        ("f", "nothing", ""),
        ("g", "step 4, field outcome", "yes"),
    )
    assert report.verdict.exit_code == 1


def test_defects_that_show_only_together_or_not_at_all_are_said_so(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir(), (tmp_path / "2").mkdir()
    report = explained(tmp_path / "1", {("e", "f", "g"): {4: "failed"}, ("e",): {4: "empty"}})
    assert report.verdict.headline.endswith("explained by none of them alone: they act together")
    report = explained(tmp_path / "2", {})
    assert report.verdict.headline == "Equal: no known defect shows on these requests"
    assert report.verdict.exit_code == 0


def test_runs_that_decoded_nothing_are_no_pass(tmp_path: Path) -> None:
    report = explained(tmp_path, {}, steps=0)
    assert report.verdict.exit_code == 3 and "no step was decoded" in report.verdict.headline


def test_requests_may_ask_for_what_only_the_step_policy_can_do(tmp_path: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    body = {"prompt": "prompt", "max_tokens": 4, "logit_bias": {"9": 50}}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body}
    requests.write_text(json.dumps(line) + "\n")
    record_tree(task(ROOT, requests, tmp_path / "run", options=PRESSURE))
    record = open_record(tmp_path / "run")
    assert len(record.requests) == 1 and "refused" not in dict(record.header.facts)


def test_a_tree_is_asked_which_defects_it_knows() -> None:
    assert {"spill_forgets", "swap_in_without_growth"} < set(known_defects(ROOT))
    assert "history_without_dropped" not in known_defects(ROOT)


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
