"""The soak in small, its eyes, and a run that is killed while rows are spilled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from batchgen.scheduler.engine.blocks import Blocks
from batchgen.scheduler.engine.reply import Reply
from batchgen.scheduler.file_spill import FileSpill
from benchmarks.step_soak import soak


@pytest.mark.parametrize("model", ["tiny", "tiny-dual", "tiny-hybrid"])
def test_nothing_leaks_and_every_request_ends_once(tmp_path: Path, model: str) -> None:
    ledger = soak(150, seed=1, model=model, directory=tmp_path)
    assert ledger.faults == []
    assert sum(ledger.ends.values()) == 150
    assert ledger.stats["spilled"] + ledger.stats["requeued"] > 0
    assert {"length", "cancelled", "timeout"} <= set(ledger.ends)
    assert "nothing leaked" in "\n".join(ledger.lines())


def test_the_ledger_shows_a_page_that_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close, closed = Blocks.close, []

    def keep_the_fifth(self: Blocks, seq, *, holds=()) -> None:  # type: ignore[no-untyped-def]
        closed.append(seq.slot_idx)
        if len(closed) == 5:
            self.pool.regroup_pages(
                [seq.slot_idx], {1000: self.pool.pages_of(seq.slot_idx), seq.slot_idx: []}
            )
        close(self, seq, holds=())

    monkeypatch.setattr(Blocks, "close", keep_the_fifth)
    faults = soak(20, seed=1, model="tiny", directory=tmp_path).faults
    assert any("pages are not" in fault for fault in faults)
    assert any("pages never came back" in fault for fault in faults)


def test_the_ledger_shows_an_entry_that_stays_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileSpill, "remove", lambda self, swap_id: None)
    faults = soak(80, seed=1, model="tiny", directory=tmp_path).faults
    assert any("the spill store still counts" in fault for fault in faults)


def test_the_ledger_shows_a_request_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    send = Reply.send

    def forget_the_end_of_r3(self: Reply, event) -> bool:  # type: ignore[no-untyped-def]
        if event.token is None and self.row is not None and self.row.request_id == "r3":
            return True
        return send(self, event)

    monkeypatch.setattr(Reply, "send", forget_the_end_of_r3)
    faults = soak(20, seed=1, model="tiny", directory=tmp_path).faults
    assert any("1 requests did not end exactly once, among them ['r3']" in fault for fault in faults)


@pytest.mark.slow
def test_a_run_killed_while_rows_are_spilled_leaves_a_folder_that_the_next_one_cleans(tmp_path: Path) -> None:
    requests, results, folder = tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "spilled"
    with requests.open("w") as file:
        for number in range(60):
            body = {"prompt": "x" * (number % 30 + 1), "max_tokens": 200, "ignore_eos": True}
            print(json.dumps({"custom_id": f"r{number}", "url": "/v1/completions", "body": body}), file=file)
    command = [sys.executable, "-m", "batchgen", "run", str(requests), "-o", str(results)]
    command += [
        "--model",
        "tiny",
        "--policy",
        "step",
        "--page-size",
        "4",
        "--gpu-pages",
        "120",
        "--max-batch",
        "8",
    ]
    command += ["--threads", "1", "--row-exact", "--json"]
    spilling = [*command, "--spill-dir", str(folder)]
    process = subprocess.Popen(spilling, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not any(folder.rglob("*.kv")):
            assert process.poll() is None, "the run ended before a row was spilled"
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert any(folder.rglob("*.kv"))
    again = subprocess.run(spilling, capture_output=True, text=True, check=True)
    assert json.loads(again.stdout)["engine"]["spilled"] > 0
    assert list(folder.iterdir()) == []
    killed = {line["custom_id"]: line for line in map(json.loads, results.read_text().splitlines())}
    assert len(killed) == 60
    whole = tmp_path / "whole.jsonl"
    command[command.index(str(results))] = str(whole)
    subprocess.run(command, capture_output=True, check=True)
    assert killed == {line["custom_id"]: line for line in map(json.loads, whole.read_text().splitlines())}
