"""A whole run on a fake worker: lines in, lines out, resumed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from batchgen.requests import (
    GenerationResult,
    Job,
    OutputConflictError,
    Ranks,
    RequestDefaults,
    RequestsUnreadableError,
    ResultFile,
    RunError,
    RunIdentity,
    TokenizedRequest,
    WorkerProgress,
    lead,
    open_job,
    report_wrong_lines,
)
from tests.batchgen.requests.fake_worker import FakeWorker

IDENTITY = RunIdentity("tiny", "tiny", "float32", 0, False, 16)
DEFAULTS = RequestDefaults(16, 0, frozenset({"tiny"}))


def request(custom_id: str, prompt: str = "hello", **body: Any) -> str:
    entry = {"custom_id": custom_id, "url": "/v1/completions", "body": {"prompt": prompt, **body}}
    return json.dumps(entry) + "\n"


def run(folder: Path, worker: FakeWorker | None = None, identity: RunIdentity = IDENTITY, **how: bool) -> Job:
    with ResultFile(folder / "out.jsonl") as output:
        job = open_job(folder / "in.jsonl", output, identity, DEFAULTS, **how)
        report_wrong_lines(job)
        lead(job, worker or FakeWorker(), Ranks())
        return job


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(raw) for raw in (folder / "out.jsonl").read_bytes().splitlines()]


def test_every_line_of_the_input_has_one_line_in_the_output(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(
        request("long", "x" * 40)
        + "not json\n"
        + request("short", "ab")
        + request("short", "again")
        + request("far too long", "y" * 600)
        + request("refused", "x", top_k=3)
        + request("engine says no", "impossible")
    )
    job = run(tmp_path)
    found = lines(tmp_path)
    assert [(entry["custom_id"], entry["error"] and entry["error"]["code"]) for entry in found] == [
        (None, "invalid_json"),
        ("short", "duplicate_custom_id"),
        ("refused", "unsupported_field"),
        ("far too long", "context_length_exceeded"),
        ("short", None),
        ("engine says no", "cannot_run"),
        ("long", None),
    ], "wrong lines first, then the order of completion"
    assert [entry["error"]["line"] for entry in found if entry["error"]] == [2, 4, 6, 5, 7]
    assert found[4]["response"]["body"]["choices"][0]["text"] == "ba"
    tally = job.tally
    assert (tally.requests, tally.results, tally.new_errors, tally.errors, tally.num_done) == (7, 2, 5, 5, 7)
    assert (tally.generated_tokens, tally.prompt_tokens) == (2 + 16, 2 + 40 + 10)


def test_a_second_run_of_the_same_files_asks_the_worker_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(
        request("a") + "oops\n" + request("b", "x" * 600) + request("c", "impossible")
    )
    run(tmp_path)
    before = (tmp_path / "out.jsonl").read_bytes()
    worker = FakeWorker()
    job = run(tmp_path, worker)
    assert worker.seen == []
    assert (tmp_path / "out.jsonl").read_bytes() == before
    assert (job.tally.done_before, job.tally.num_done, job.tally.errors) == (4, 4, 3)


def test_a_crashed_run_is_finished_without_repeating_a_line(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(request(f"r{i}", "x" * (i + 1)) for i in range(9)) + "oops\n")
    with pytest.raises(RuntimeError, match="fake engine"):
        run(tmp_path, FakeWorker(fail_at=4))
    assert len(lines(tmp_path)) == 1 + 4
    worker = FakeWorker()
    run(tmp_path, worker)
    assert [r.custom_id for r in worker.seen] == [f"r{i}" for i in range(4, 9)]
    ids = [entry["id"] for entry in lines(tmp_path)]
    assert len(ids) == len(set(ids)) == 10


def test_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    text = "".join(request(f"r{i}", "x" * (9 - i), temperature=0.5) for i in range(9)) + "oops\n"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "in.jsonl").write_text(text)
    run(tmp_path / "one")
    with pytest.raises(RuntimeError):
        run(tmp_path / "two", FakeWorker(fail_at=3))
    run(tmp_path / "two")
    one, two = ((tmp_path / name / "out.jsonl").read_bytes() for name in ("one", "two"))
    assert sorted(one.splitlines()) == sorted(two.splitlines())


def test_requests_may_be_added_but_not_changed_between_runs(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(request("a") + request("b"))
    run(tmp_path)
    source.write_text(request("new") + request("b") + request("a"))
    worker = FakeWorker()
    run(tmp_path, worker)
    assert [r.custom_id for r in worker.seen] == ["new"]
    source.write_text(request("a") + request("b", "other words") + request("new"))
    with pytest.raises(OutputConflictError, match="custom_id 'b' was made from another request"):
        run(tmp_path)
    worker = FakeWorker()
    job = run(tmp_path, worker, force=True)
    assert worker.seen == [] and len(lines(tmp_path)) == 3
    assert job.tally.num_done == job.tally.requests == 3
    run(tmp_path, worker, restart=True)
    assert len(worker.seen) == 3 and len(lines(tmp_path)) == 3


def test_other_options_do_not_continue_a_run(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(request("a"))
    run(tmp_path)
    other = RunIdentity("tiny", "tiny", "bfloat16", 0, False, 16)
    with pytest.raises(OutputConflictError, match="made with other options"):
        run(tmp_path, identity=other)


def test_a_requests_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(RequestsUnreadableError, match=r"cannot read .*in\.jsonl: No such file"):
        run(tmp_path)


class ForgetfulWorker(FakeWorker):
    def generate(
        self,
        requests: Sequence[TokenizedRequest],
        *,
        on_result: Callable[[GenerationResult], None] | None = None,
        on_progress: Callable[[WorkerProgress], None] | None = None,
    ) -> list[GenerationResult]:
        return super().generate(requests[1:], on_result=on_result, on_progress=on_progress)


class RepeatingWorker(FakeWorker):
    def generate(
        self,
        requests: Sequence[TokenizedRequest],
        *,
        on_result: Callable[[GenerationResult], None] | None = None,
        on_progress: Callable[[WorkerProgress], None] | None = None,
    ) -> list[GenerationResult]:
        return super().generate([*requests, requests[0]], on_result=on_result, on_progress=on_progress)


@pytest.mark.parametrize(
    ("worker", "words"),
    [
        (ForgetfulWorker(), "without a result for 1 of 3 requests, among them custom_id 'a'"),
        (RepeatingWorker(), "second result for custom_id 'a'"),
    ],
)
def test_a_lost_or_repeated_result_is_an_error(tmp_path: Path, worker: FakeWorker, words: str) -> None:
    (tmp_path / "in.jsonl").write_text(
        request("a") + request("b", "longer than a") + request("c", "longer than b")
    )
    with pytest.raises(RunError, match=words):
        run(tmp_path, worker)
    assert len({entry["id"] for entry in lines(tmp_path)}) == len(lines(tmp_path))


def test_ten_thousand_requests_take_seconds(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(
        "".join(request(f"r{i}", f"prompt {i}", max_tokens=8) for i in range(10_000))
    )
    started = time.process_time()
    run(tmp_path)
    job = run(tmp_path)
    spent = time.process_time() - started
    assert len(lines(tmp_path)) == 10_000 and job.tally.done_before == 10_000
    assert spent < 10, f"reading, writing and resuming 10,000 lines took {spent:.1f} s of CPU"
