"""Whatever ends a run of several ranks, it ends soon, says why, and leaves no process behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from reports import from_json

from .support import ROOT, command, environment, write_requests

pytestmark = pytest.mark.multirank

# Each side tells its process at its fifth decode step.
MARKED = """

def _marked(step, folder):
	def hook(self, *arguments):
		if self.counters["decode_steps"] == 5:
			with open(f"{folder}/{os.environ['SIDE']}-{self.rank}", "w") as file:
				file.write(str(os.getpid()))
		return step(self, *arguments)
	return hook


BatchGenWorker._decode_forward_step = _marked(BatchGenWorker._decode_forward_step, FOLDER)
"""
SIDES = ("legacy-0", "legacy-1", "candidate-0", "candidate-1")


class Running:
    """A comparison in the middle of its run, and the processes of its sides by name."""

    def __init__(self, folder: Path) -> None:
        tree, marks, self.report = folder / "tree", folder / "marks", folder / "report.json"
        marks.mkdir()
        shutil.copytree(ROOT / "batchgen", tree / "batchgen", ignore=shutil.ignore_patterns("__pycache__"))
        with (tree / "batchgen/batchgen_worker.py").open("a") as file:
            file.write(MARKED.replace("FOLDER", repr(str(marks))))
        trees = ("--legacy", str(tree), "--candidate", str(tree))
        sides = ("--legacy-env", "SIDE=legacy", "--candidate-env", "SIDE=candidate")
        requests = write_requests(folder / "requests.jsonl", count=40, max_tokens=60)
        self.process = subprocess.Popen(
            command(requests, self.report, *trees, *sides),
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        while not all((marks / side).is_file() and (marks / side).read_text() for side in SIDES):
            assert self.process.poll() is None, self.process.communicate()[0]
            time.sleep(0.05)
        self.pids = {side: int((marks / side).read_text()) for side in SIDES}

    def end(self) -> tuple[int, str]:
        """(exit code, what was said); TimeoutExpired where it does not come to its end."""
        said, _ = self.process.communicate(timeout=250)  # a step's own time-out is 300 s
        return self.process.returncode, said

    def left(self) -> list[str]:
        """Sides that still run."""
        return [side for side, pid in self.pids.items() if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize("side", ["legacy", "candidate"])
def test_a_rank_that_is_killed_ends_all_and_is_named(tmp_path: Path, side: str) -> None:
    running = Running(tmp_path)
    os.kill(running.pids[f"{side}-1"], signal.SIGKILL)
    code, said = running.end()
    assert code == 2, said
    assert not running.left()
    headline = from_json(running.report.read_text()).verdict.headline
    assert headline.startswith(f"No verdict: the {side} side of rank 1 was killed by SIGKILL; it ")
    assert " decode steps" in headline, "it says what the rank was doing"


def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    running = Running(tmp_path)
    os.killpg(running.process.pid, signal.SIGINT)  # as a terminal does
    code, said = running.end()
    assert (code, said.strip()) == (130, "shadow: interrupted; nothing was left running")
    assert not running.left()


def test_no_process_outlives_a_comparison_that_is_killed(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.process.kill()
    running.process.wait()
    while running.left():  # the test's own time-out is the limit
        time.sleep(0.05)
