"""The real worker under pressure, recorded; its plans replayed and its records compared, through the commands."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reports import Report, from_json
from shadow.cli import main
from shadow.observation import Event, Kind, Point
from shadow.plain import Record as PlainRecord
from shadow.record.process import Task
from shadow.record.reader import open_record
from shadow.record.recorder import Content
from shadow.record.snapshot import DECISIONS
from shadow.record.start import record_tree

ROOT = Path(__file__).parents[3]
WORKER = "batchgen/batchgen_worker.py"
CREDIT = '\t\t\trank_free[state["assigned_rank"]] += state["gpu_pages_allocated"]\n'
# Pools so small that sequences are held, evicted, prefilled again and loaded again.
PRESSURE: dict[str, object] = {
    "model": "tiny",
    "page_size": 4,
    "initial_gpu_page_buffer": 3,
    "extension_gpu_page_buffer": 2,
    "decision_frequency_pages": 2,
    "max_batch_size": 8,
    "gpu_kv_pages": 40,
    "host_kv_pages": 60,
    "host_kv_chunk_size": 4,
    "adaptive_host_kv_chunk": False,
    "host_kv_eviction_watermark": 0,
}


def requests_file(path: Path, count: int = 16, tokens: int = 30) -> Path:
    url = "/v1/completions"
    lines = [
        {
            "custom_id": f"r{i}",
            "method": "POST",
            "url": url,
            "body": {"prompt": "prompt" * (1 + i % 3), "max_tokens": tokens + i % 7, "ignore_eos": True},
        }
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def task(tree: Path, requests: Path, path: Path, **changes: Any) -> Task:
    fields: dict[str, Any] = {"options": PRESSURE, "content": (), "chunk_events": 64, "facts": {}, **changes}
    return Task(tree=str(tree), requests=str(requests), path=str(path), threads=1, **fields)


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(the worker as it is, the same without the credit of pages of completed sequences)."""
    faulty = tmp_path_factory.mktemp("faulty")
    shutil.copytree(ROOT / "batchgen", faulty / "batchgen", ignore=shutil.ignore_patterns("__pycache__"))
    source = (faulty / WORKER).read_text()
    assert source.count(CREDIT) == 2, "completions, then evictions"
    (faulty / WORKER).write_text(source.replace(CREDIT, CREDIT.replace("+= state", "+= 0 * state"), 1))
    return ROOT, faulty


@pytest.fixture(scope="module")
def records(trees: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """(a run of the worker, the same again with digests and logits, a run of the faulty one)."""
    folder = tmp_path_factory.mktemp("records")
    requests = requests_file(folder / "requests.jsonl")
    good, faulty = trees
    paths = folder / "one", folder / "two", folder / "faulty"
    record_tree(task(good, requests, paths[0]))
    record_tree(task(good, requests, paths[1], content=tuple(Content), chunk_events=50))
    record_tree(task(faulty, requests, paths[2]))
    return paths


def decisions(event: Event) -> dict[str, Any]:
    value = event.values[DECISIONS]
    assert isinstance(value, PlainRecord)
    return dict(value.fields)


def reported(tmp_path: Path, *arguments: object) -> Report:
    path = tmp_path / "report.json"
    code = main([*map(str, arguments), "--json", str(path)])
    report = from_json(path.read_text())
    assert report.verdict.exit_code == code
    return report


def where(report: Report) -> dict[str, str]:
    return {fact.name: fact.value for fact in report.findings[0].where}


def test_the_record_holds_the_run_with_its_pressure(records: tuple[Path, Path, Path]) -> None:
    record = open_record(records[0])
    assert record.end is not None and record.end.outcome == "done"
    assert len(record.requests) == 16
    points = Counter(event.point for event in record.events())
    assert points[Point.DECODE] > 50 and points[Point.DECISIONS] > 10 and points[Point.END] == 1
    made = [decisions(event) for event in record.events() if event.point is Point.DECISIONS]
    for field in (
        "completed_uuids",
        "host_evicted_uuids",
        "onhold_uuids",
        "new_load_uuids",
        "host_growth_uuids",
    ):
        assert any(decision[field] for decision in made), f"no boundary with {field}"
    kinds = {key.kind for key in record.dictionary.keys}
    assert {Kind.PAGE_TABLE, Kind.SEQUENCE, Kind.BOUNDARY, Kind.TOKENS, Kind.RESULT} <= kinds
    assert not kinds & {Kind.KV, Kind.HOST_KV}, "integers only"
    rows = [key for key in record.dictionary.keys if key.kind is Kind.LOGITS]
    assert {key.field for key in rows} <= {"rows"}
    assert {Kind.KV, Kind.LOGITS} <= {key.kind for key in open_record(records[1]).dictionary.keys}


def test_all_plans_replay_equal_with_no_engine(records: tuple[Path, Path, Path], tmp_path: Path) -> None:
    for path in records[:2]:
        report = reported(tmp_path, "replay", path, "--tree", ROOT)
        assert report.verdict.exit_code == 0, report
        counts = {check.name: check.count for check in report.checks}
        assert counts["page_table"] > 200 and counts["boundary"] > 50
        assert [row[0] for row in report.tables[0].rows] == ["step", "boundary"]


def test_a_planner_without_the_credit_of_completed_pages_is_found_with_step_and_sequence(
    records: tuple[Path, Path, Path], trees: tuple[Path, Path], tmp_path: Path
) -> None:
    report = reported(tmp_path, "replay", records[0], "--tree", trees[1])
    assert report.verdict.exit_code == 1
    found = where(report)
    first = next(
        event
        for event in open_record(records[0]).events()
        if event.point is Point.DECISIONS and decisions(event)["completed_uuids"]
    )
    # Who was to be loaded into the pages of those who had completed, or to extend into them.
    assert int(found["step"]) >= first.step
    assert found["sequence"].startswith("r") and found["field"].startswith("decisions.")
    event = next(
        e
        for e in open_record(records[0]).events()
        if e.point is Point.DECISIONS and e.step == int(found["step"])
    )
    field = found["field"].removeprefix("decisions.").partition("[")[0]
    named = found["sequence"] in decisions(event)[field]
    assert named == (report.findings[0].expected == "named")


def test_records_of_two_runs_are_equal_whatever_else_one_of_them_holds(
    records: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    report = reported(tmp_path, "diff", records[0], records[1])
    assert report.verdict.exit_code == 0, report


def test_records_of_two_trees_part_at_the_faulty_decision(
    records: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    report = reported(tmp_path, "diff", records[0], records[2])
    assert report.verdict.exit_code == 1
    assert report.findings[0].code == "boundary" and where(report)["field"].startswith("decisions.")
    assert where(report)["sequence"].startswith("r")
    replayed = reported(tmp_path, "replay", records[2], "--tree", ROOT)
    assert where(replayed)["step"] == where(report)["step"]


def test_a_killed_recorder_leaves_what_it_had_written(tmp_path: Path) -> None:
    requests = requests_file(tmp_path / "requests.jsonl", count=64, tokens=100)
    path = tmp_path / "killed"
    job = task(ROOT, requests, path, chunk_events=4, options={**PRESSURE, "host_kv_pages": 4000})
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", "shadow.record.process", msgspec.json.encode(job).decode()]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 300
            while not (path.exists() and path.stat().st_size > 8_000):
                assert process.poll() is None and time.monotonic() < deadline, "it never got so far"
                time.sleep(0.02)
        finally:
            process.send_signal(signal.SIGKILL)
    record = open_record(path)
    assert record.end is None and record.event_count >= 4
    assert len(list(record.events())) == record.event_count
    report = reported(tmp_path, "diff", path, path)
    assert report.verdict.exit_code == 3 and "outcome" in report.verdict.headline
    assert any("recorder was killed" in fact.value for fact in report.facts)
    assert reported(tmp_path, "replay", path).verdict.exit_code == 0
