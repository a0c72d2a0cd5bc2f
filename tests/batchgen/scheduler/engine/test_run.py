"""`batchgen run --policy step`, from request lines to result lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchgen.cli import main

CHAT = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("batchgen", "batchgen.scheduler")]
    before = [(logger.level, list(logger.handlers), logger.propagate) for logger in loggers]
    yield
    for logger, (level, handlers, propagate) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:], logger.propagate = handlers, propagate


def chat(custom_id: str, text: str = "hello", **body: Any) -> str:
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 24} | body
    return json.dumps({"custom_id": custom_id, "url": CHAT, "body": body})


def run(folder: Path, lines: list[str], *options: str) -> dict[str, dict[str, Any]]:
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n")
    files = (str(folder / "in.jsonl"), "-o", str(folder / "out.jsonl"), "--restart")
    small = ("--model", "tiny", "--page-size", "4", "--max-batch", "8", "--threads", "1", "--policy", "step")
    assert main(["run", *files, *small, *options]) == 0
    found = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert len(found) == len(lines)
    return {line["custom_id"]: line for line in found}


def choice(line: dict[str, Any]) -> dict[str, Any]:
    assert line["error"] is None, line
    found: dict[str, Any] = line["response"]["body"]["choices"][0]
    return found


@pytest.mark.parametrize("spill", [False, True])
def test_a_scarce_pool_finishes_and_says_how_often_rows_made_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spill: bool
) -> None:
    lines = [chat(f"r{i}", "x" * (i % 7 + 1), max_tokens=60, ignore_eos=True) for i in range(16)]
    folder = tmp_path / "spilled"
    options = ["--gpu-pages", "60", *(["--spill-dir", str(folder)] if spill else [])]
    results = run(tmp_path, lines, *options, "--json")
    assert all(choice(line) for line in results.values())
    captured = capsys.readouterr()
    engine = json.loads(captured.out)["engine"]
    made_room = engine["spilled"] + engine["requeued"]
    assert made_room > 0 and (engine["spilled"] > 0) is spill
    assert (
        f"{made_room} preempted ({engine['spilled']} spilled, {engine['requeued']} requeued), {made_room} resumed"
        in captured.err
    )
    assert "KV cache exhausted" not in captured.err
    if spill:
        assert list(folder.iterdir()) == []


def test_the_rows_of_each_step_are_in_the_log_at_debug_level(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, [chat("a"), chat("b")], "--log-level", "debug")
    err = capsys.readouterr().err
    assert "CONC_DIAG n=2: [0: slot=" in err and " DEBUG batchgen.scheduler.diagnosis: " in err


def test_a_thinking_request_has_its_thoughts_beside_its_answer(tmp_path: Path) -> None:
    results = run(
        tmp_path,
        [
            chat("with", enable_thinking=True, thinking_budget=4, max_tokens=60),
            chat("without", enable_thinking=False),
        ],
    )
    thought = choice(results["with"])["message"]["reasoning_content"]
    ids = results["with"]["response"]["body"]["batchgen"]["token_ids"]
    assert thought and ids.index(259) >= 4  # closed by force some time after its budget
    assert "reasoning_content" not in choice(results["without"])["message"]


def test_a_required_tool_call_is_made(tmp_path: Path) -> None:
    """A bias towards the tokens stands for a model that knows tools."""
    results = run(
        tmp_path,
        [
            chat("bias", tools=[TOOL], tool_choice="required", max_tokens=9, logit_bias={"261": 100}),
            chat("none", tools=[TOOL], tool_choice="none", max_tokens=9, logit_bias={"261": 10}),
        ],
    )
    assert 261 in results["bias"]["response"]["body"]["batchgen"]["token_ids"]
    assert 261 not in results["none"]["response"]["body"]["batchgen"]["token_ids"]


def test_the_same_command_finishes_what_is_missing(tmp_path: Path) -> None:
    lines = [chat(f"r{i}", "x" * i) for i in range(1, 7)]
    whole = run(tmp_path, lines, "--row-exact")
    path = tmp_path / "out.jsonl"
    first = path.read_text().splitlines(keepends=True)[:3]
    path.write_text("".join(first))
    files = (str(tmp_path / "in.jsonl"), "-o", str(path), "--row-exact")
    small = ("--model", "tiny", "--page-size", "4", "--max-batch", "8", "--threads", "1", "--policy", "step")
    assert main(["run", *files, *small]) == 0
    again = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["custom_id"]: line for line in again} == whole
