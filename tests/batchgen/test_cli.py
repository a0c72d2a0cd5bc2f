"""The command line: help, usage, exit codes, what is printed where."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import batchgen.engine
from batchgen.cli import main as real_main
from batchgen.logs import shown_from
from batchgen.models import ModelLoadError
from batchgen.progress import ProgressBar, TokenRate, describe
from batchgen.requests import WorkerProgress
from tests.batchgen.requests.fake_worker import FakeWorker, main


def write_requests(folder: Path, count: int = 3, extra: str = "") -> Path:
    path = folder / "in.jsonl"
    lines = [
        json.dumps({"custom_id": f"r{i}", "url": "/v1/completions", "body": {"prompt": "x" * (i + 1)}})
        for i in range(count)
    ]
    path.write_text("".join(line + "\n" for line in lines) + extra)
    return path


def run(folder: Path, *options: str, worker: FakeWorker | None = None) -> int:
    files = (str(folder / "in.jsonl"), "-o", str(folder / "out.jsonl"))
    return main(["run", *files, "--model", "tiny", *options], worker or FakeWorker())


def results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out.jsonl").read_bytes().splitlines()]


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom batchgen.cli import main\n"
        "status = main([*sys.argv[1:], '--help'])\n"
        "heavy = sorted({'torch', 'numpy', 'transformers', 'msgspec'} & set(sys.modules))\n"
        "sys.exit(status or (f'imported {heavy}' if heavy else 0))"
    )
    for arguments in ([], ["run"]):
        ran = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60
        )
        assert ran.returncode == 0, ran.stderr
        assert "Usage: batchgen" in ran.stdout
    assert "Examples" in ran.stdout and "130 interrupted" in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "batchgen: Missing command."),
        (["walk"], "batchgen: No such command 'walk'."),
        (["run"], "batchgen run: Missing"),
        (["run", "in.jsonl", "-o", "out.jsonl", "--fast"], "batchgen run: No such option: --fast"),
        (
            ["run", "in.jsonl", "-o", "out.jsonl", "--page-size", "many"],
            "--page-size': Input should be a valid integer",
        ),
        (["run", "in.jsonl", "-o", "out.jsonl", "--page-size", "0"], "page_size must be at least 1"),
        (["run", "in.jsonl", "-o", "out.jsonl", "--dtype", "int4"], "dtype 'int4' is not one of float32"),
        (["run", "in.jsonl", "-o", "out.jsonl", "--policy", "x"], "policy 'x' is not known"),
        (
            ["run", "in.jsonl", "-o", "out.jsonl", "--spill-dir", "x"],
            "--spill-dir means nothing to policy 'boundary'",
        ),
        (["run", "in.jsonl", "-o", "out.jsonl", "--adaptive-sampling"], "add --policy step, or leave it out"),
        (
            ["run", "in.jsonl", "-o", "out.jsonl", "--policy", "step", "--host-pages", "9"],
            "--host-pages means nothing to policy 'step'",
        ),
        (
            ["run", "in.jsonl", "-o", "out.jsonl", "--policy", "step", "--spill-bytes", "1G"],
            "--spill-bytes needs --spill-dir",
        ),
        (
            [
                "run",
                "in.jsonl",
                "-o",
                "out.jsonl",
                "--policy",
                "step",
                "--spill-dir",
                "x",
                "--spill-bytes",
                "1Q",
            ],
            "'1Q' is not a size such as 512M or 8G",
        ),
        (
            ["run", "in.jsonl", "-o", "out.jsonl", "--attention", "x"],
            "attention 'x' is not one of torch, flashinfer",
        ),
        (
            ["run", "in.jsonl", "-o", "out.jsonl", "--attention-mode", "exact"],
            "--attention-mode means nothing to attention 'torch'",
        ),
        (
            ["run", "in.jsonl", "-o", "out.jsonl", "--flashinfer-objects", "x"],
            "--flashinfer-objects means nothing to attention 'torch'",
        ),
        (["run", "in.jsonl", "-o", "out.jsonl", "--attention", "flashinfer"], "add --dtype bfloat16"),
        (
            [
                "run",
                "in.jsonl",
                "-o",
                "out.jsonl",
                "--attention",
                "flashinfer",
                "--dtype",
                "float16",
                "--row-exact",
            ],
            "does not compute row by row",
        ),
        (["run", "in.jsonl", "-o", "out.jsonl", "--log-level", "loud"], "'loud' is not one of debug, info"),
        (["run", "in.jsonl", "-o", "out.jsonl", "--force", "--restart"], "exclude each other"),
        (["run", "in.jsonl", "-o", "-", "--json"], "both want standard output"),
        (["run", "in.jsonl", "-o", "in.jsonl"], "would overwrite the requests"),
    ],
)
def test_wrong_usage_is_one_line_and_64(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    write_requests(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 64
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1 and captured.out == ""
    assert not (tmp_path / "out.jsonl").exists()


def test_a_run_says_what_it_did_and_closes_the_worker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_requests(tmp_path, 2, extra="oops\n")
    worker = FakeWorker()
    assert run(tmp_path, worker=worker) == 0
    err = capsys.readouterr().err
    assert "batchgen: 3 requests, 1 error lines; generating 2 with tiny\n" in err
    assert "batchgen: 2 results and 1 error lines in " in err
    assert len(results(tmp_path)) == 3
    assert worker.closed


def test_strict_turns_error_lines_into_exit_1_again_and_again(tmp_path: Path) -> None:
    write_requests(tmp_path, 1)
    assert run(tmp_path, "--strict") == 0
    write_requests(tmp_path, 1, extra="oops\n")
    assert run(tmp_path, "--strict") == 1
    assert run(tmp_path, "--strict") == 1
    assert run(tmp_path) == 0


def test_an_empty_file_is_a_finished_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.jsonl").write_text("\n\n")
    assert run(tmp_path, worker=FakeWorker(fail_at=0)) == 0
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and "holds no requests" in captured.err
    assert (tmp_path / "out.jsonl").read_bytes() == b""


def test_a_finished_run_is_not_started_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_requests(tmp_path)
    assert run(tmp_path) == 0
    capsys.readouterr()
    monkeypatch.setattr(batchgen.engine, "build_worker", None)
    files = (str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "out.jsonl"))
    assert real_main(["run", *files, "--model", "tiny"]) == 0
    assert "all 3 requests are done already" in capsys.readouterr().err


def test_json_prints_one_summary_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_requests(tmp_path, 2, extra="oops\n")
    assert run(tmp_path, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary.pop("seconds") > 0
    assert summary == {
        "output": str(tmp_path / "out.jsonl"),
        "exit_code": 0,
        "error": None,
        "requests": 3,
        "done_before": 0,
        "results": 2,
        "new_errors": 1,
        "errors": 1,
        "prompt_tokens": 3,
        "generated_tokens": 3,
        "engine": {"requests": 2},
    }


def test_an_engine_failure_is_one_line_with_what_is_safe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_requests(tmp_path, 4)
    worker = FakeWorker(fail_at=2)
    assert run(tmp_path, "--json", worker=worker) == 2
    captured = capsys.readouterr()
    line = captured.err.splitlines()[-1]
    assert line.startswith(
        "batchgen: the engine failed: RuntimeError: the fake engine broke (2 of 4 lines are in "
    )
    assert line.endswith("; the same command again finishes the rest)")
    assert "Traceback" not in captured.err
    summary = json.loads(captured.out)
    assert (summary["exit_code"], summary["results"]) == (2, 2) and "broke" in summary["error"]
    assert worker.closed
    assert run(tmp_path, "--traceback", worker=FakeWorker(fail_at=1)) == 2
    assert "Traceback" in capsys.readouterr().err
    assert run(tmp_path) == 0
    assert len(results(tmp_path)) == 4


class TidyingFails(FakeWorker):
    """Its cleaning up after an interrupt fails, as an engine's may."""

    def __init__(self, stop: BaseException) -> None:
        super().__init__()
        self.stop = stop

    def generate(self, *arguments: Any, **how: Any) -> Any:
        try:
            raise self.stop
        finally:
            raise RuntimeError("cannot tidy up")


def test_an_interrupt_stays_one_when_the_engine_cannot_tidy_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_requests(tmp_path)
    assert run(tmp_path, worker=TidyingFails(KeyboardInterrupt())) == 130
    assert "batchgen: interrupted (0 of 3 lines are in" in capsys.readouterr().err


def test_a_model_that_cannot_be_loaded_is_said_in_its_own_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_requests(tmp_path)

    def build(options: batchgen.engine.EngineOptions) -> None:
        assert (options.model, options.gpu_kv_pages, options.cuda_graphs) == ("tiny", 7, False)
        assert (options.max_batch_size, options.max_tokens_default, options.threads) == (3, 9, 1)
        assert (options.page_size, options.host_kv_pages, options.host_kv_watermark) == (16, 8, 40)
        assert (options.dtype, options.device, options.seed, options.row_exact) == (
            "bfloat16",
            "cpu",
            5,
            True,
        )
        raise ModelLoadError("tiny: cannot be loaded, because of the test; run another one")

    monkeypatch.setattr(batchgen.engine, "build_worker", build)
    files = ["run", str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "out.jsonl"), "--model", "tiny"]
    pools = ["--gpu-pages", "7", "--host-pages", "8", "--page-size", "16", "--host-kv-watermark", "40"]
    compute = ["--dtype", "bfloat16", "--device", "cpu", "--threads", "1", "--row-exact", "--no-cuda-graphs"]
    rest = ["--max-batch", "3", "--max-tokens", "9", "--seed", "5"]
    assert real_main([*files, *pools, *compute, *rest]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("batchgen: tiny: cannot be loaded, because of the test; run another one (0 of 3")


def test_files_that_cannot_be_used_have_their_own_exit_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path) == 66
    assert "cannot read" in capsys.readouterr().err
    write_requests(tmp_path)
    assert main(["run", str(tmp_path / "in.jsonl"), "-o", str(tmp_path)], FakeWorker()) == 74
    assert "Is a directory" in capsys.readouterr().err
    (tmp_path / "out.jsonl").write_text("precious words\n")
    assert run(tmp_path) == 65
    captured = capsys.readouterr()
    assert "not a result line" in captured.err and captured.err.count("\n") == 1
    assert (tmp_path / "out.jsonl").read_text() == "precious words\n"
    assert run(tmp_path, "--restart") == 0


def test_a_run_does_not_continue_with_other_options_unless_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_requests(tmp_path)
    assert run(tmp_path) == 0
    assert run(tmp_path, "--seed", "1") == 65
    assert "made with other options" in capsys.readouterr().err
    assert run(tmp_path, "--max-batch", "2", "--page-size", "16") == 0, "these change no result"
    assert run(tmp_path, "--seed", "1", "--force") == 0
    assert len(results(tmp_path)) == 3


def test_results_can_go_to_standard_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_requests(tmp_path)
    assert main(["run", str(tmp_path / "in.jsonl"), "-o", "-", "--model", "tiny"], FakeWorker()) == 0
    assert len([json.loads(line) for line in capfd.readouterr().out.splitlines()]) == 3


def test_lines_for_another_model_run_only_when_told_so(tmp_path: Path) -> None:
    body = {"prompt": "x", "model": "gpt-4o-mini"}
    line = json.dumps({"custom_id": "a", "url": "/v1/completions", "body": body})
    (tmp_path / "in.jsonl").write_text(line)
    assert run(tmp_path) == 0
    assert results(tmp_path)[0]["response"]["status_code"] == 404
    assert run(tmp_path, "--ignore-model", "--restart") == 0
    assert results(tmp_path)[0]["response"]["body"]["model"] == "tiny"


def test_a_model_file_is_known_by_its_name_and_size(tmp_path: Path) -> None:
    write_requests(tmp_path)
    model = tmp_path / "my.gguf"
    model.write_bytes(b"x" * 10)
    assert run(tmp_path, "--model", str(model)) == 0
    assert results(tmp_path)[0]["response"]["body"]["model"] == "my.gguf"
    model.write_bytes(b"x" * 11)
    assert run(tmp_path, "--model", str(model)) == 65


def test_progress_shows_on_a_terminal_only_unless_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_requests(tmp_path)
    assert run(tmp_path) == 0
    assert "tok/s" not in capsys.readouterr().err
    assert run(tmp_path, "--progress", "--restart") == 0
    err = capsys.readouterr().err
    assert "3/3" in err and "pages 0/9" in err


COUNTS = WorkerProgress(
    generated_tokens=50, prompt_tokens=9, completed=4, total=6, running=1, queued=1, on_hold=0, gpu_pages_used=3,
    gpu_pages_total=8, host_pages_used=5, host_pages_total=16,
)  # fmt: skip


def test_the_bar_counts_lines_that_the_worker_never_sees() -> None:
    console = Console(width=160, force_terminal=True, color_system=None, record=True)
    with ProgressBar(console, total=10, enabled=True) as bar:
        bar.update(COUNTS)
    text = console.export_text()
    assert "8/10" in text
    assert "1 running, 1 queued, pages 3/8, host 5/16" in text


def test_sequences_on_hold_are_shown_where_there_are_any() -> None:
    assert describe(replace(COUNTS, on_hold=2), 12.34) == (
        "12.3 tok/s, 1 running, 1 queued, 2 on hold, pages 3/8, host 5/16"
    )


def test_the_rate_is_that_of_the_last_seconds() -> None:
    rate = TokenRate()
    assert rate.update(0.0, 0) == 0.0
    assert rate.update(5.0, 100) == 20.0
    for second in range(6, 40):
        value = rate.update(float(second), 100 + second * 7)
    assert value == pytest.approx(7.0)


@pytest.mark.parametrize("level", [None, "debug"])
def test_a_command_leaves_the_log_as_it_was(level: str | None) -> None:
    loggers = [logging.getLogger(name) for name in ("batchgen", "batchgen.scheduler")]
    before = [(logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    with shown_from(level):
        assert [(logger.level, logger.propagate, list(logger.handlers)) for logger in loggers] != before
    assert [(logger.level, logger.propagate, list(logger.handlers)) for logger in loggers] == before
