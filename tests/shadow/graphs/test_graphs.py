"""`shadow graphs` on the real engine: what a replay and its eager run differ in, and what was never compared."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from reports import Report, from_json
from shadow.cli import main
from shadow.graphs.compare import compare_replays
from shadow.graphs.messages import Task
from shadow.messages import Setup
from shadow.noise import Bound, Class, NoiseFloor, save
from shadow.noise.conditions import conditions_of

ROOT = Path(__file__).parents[3]
FILLED = "            buffer[: step[name].shape[0]].copy_(step[name])\n"
# From the sixth replay on, one of two rows keeps the position of the step before.
STALE = """\
            if name == "position_ids":
                self.filled = getattr(self, "filled", 0) + 1
                if self.filled > 5:
                    buffer[0].copy_(step[name][0])
                    continue
"""
ENGINE = ("--model", "tiny", "--page-size", "16", "--max-batch", "3", "--threads", "1")


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sequences that need ten tokens each; the worker decodes up to the next boundary."""
    path = tmp_path_factory.mktemp("requests") / "two.jsonl"
    bodies = [{"prompt": word * 3, "max_tokens": 10, "ignore_eos": True} for word in ("one ", "other ")]
    lines = [
        {"custom_id": name, "method": "POST", "url": "/v1/completions", "body": body}
        for name, body in zip(("first", "second"), bodies, strict=True)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


Edited = Callable[[str, str, str], Path]


@pytest.fixture
def edited(tmp_path: Path) -> Edited:
    """A copy of the tree in which a text of a file is another."""

    def make(file: str, old: str, new: str) -> Path:
        tree = tmp_path / "tree"
        shutil.copytree(ROOT / "batchgen", tree / "batchgen", ignore=shutil.ignore_patterns("__pycache__"))
        path = tree / "batchgen" / file
        source = path.read_text()
        assert source.count(old) == 1
        path.write_text(source.replace(old, new))
        return tree

    return make


@pytest.fixture
def stale(edited: Edited) -> Path:
    return edited("cuda_graph/buffers.py", FILLED, STALE + FILLED)


def graphs(tmp_path: Path, tree: Path, *arguments: str) -> tuple[int, Report]:
    report = tmp_path / "report.json"
    code = main(["graphs", "--tree", str(tree), *ENGINE, *arguments, "--json", str(report)])
    return code, from_json(report.read_text())


def facts(report: Report) -> dict[str, str]:
    return {fact.name: fact.value for fact in report.facts}


def places(report: Report) -> list[dict[str, str]]:
    return [{fact.name: fact.value for fact in finding.where} for finding in report.findings]


@pytest.mark.parametrize("model", ["tiny", "tiny-hybrid", "tiny-dual"])
def test_replays_of_a_sound_worker_hold_what_eager_runs_hold(
    tmp_path: Path, requests: Path, model: str
) -> None:
    code, report = graphs(tmp_path, ROOT, "--requests", str(requests), "--model", model)
    assert code == 0, report.verdict
    assert {check.name for check in report.checks if check.count} >= {"logits", "kv"}
    assert facts(report)["decode forwards"] == "16 x replay; 16 run again eagerly"


@pytest.mark.parametrize("interpreted", ["", "1"])
def test_a_stale_row_of_a_static_buffer_is_found_at_its_step_sequence_and_layer(
    tmp_path: Path, requests: Path, stale: Path, monkeypatch: pytest.MonkeyPatch, interpreted: str
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", interpreted)
    code, report = graphs(tmp_path, stale, "--requests", str(requests))
    assert code == 1
    assert places(report)[0] == {"step": "5", "sequence": "second", "layer": "0", "field": "kv_k"}
    assert {place["sequence"] for place in places(report)} == {"second"}, "the other row and padding agree"
    assert {place["field"] for place in places(report)} == {"kv_k", "kv_v", "logits"}
    waits = "by torch" if not interpreted else "read a step late"
    assert waits in facts(report)["compared"]


def test_the_kernel_and_torch_report_the_same(
    tmp_path: Path, requests: Path, stale: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for interpreted in ("", "1"):
        monkeypatch.setenv("TRITON_INTERPRET", interpreted)
        _, report = graphs(tmp_path, stale, "--requests", str(requests))
        found.append((report.findings, report.checks))
    assert found[0] == found[1]


def test_only_each_nth_step_is_run_again_and_the_run_ends_when_it_is_told_to(
    tmp_path: Path, requests: Path
) -> None:
    code, report = graphs(tmp_path, ROOT, "--requests", str(requests), "--content-every", "3", "--steps", "7")
    assert code == 0
    assert facts(report)["decode forwards"] == "7 x replay; 3 run again eagerly"


def test_steps_are_numbered_over_batches_that_run_back_to_back(requests: Path) -> None:
    options: dict[str, object] = {"model": "tiny", "page_size": 16, "max_batch_size": 3}
    steps: list[int] = []
    task = Task(str(ROOT), (str(requests), str(requests)), 1, options)
    report = compare_replays(task, on_step=lambda step, differing: steps.append(step))
    assert report.verdict.exit_code == 0
    assert steps == list(range(32))


def test_a_run_without_a_replay_has_compared_nothing_and_says_why(requests: Path) -> None:
    options: dict[str, object] = {"model": "tiny", "page_size": 16, "cuda_graphs": False}
    report = compare_replays(Task(str(ROOT), (str(requests),), 1, options))
    assert report.verdict.exit_code == 3
    assert "nothing compared of kv, logits" in report.verdict.headline
    assert facts(report)["decode forwards"] == "16 x disabled; 0 run again eagerly"


def test_a_difference_within_the_measured_bound_is_noise(
    tmp_path: Path, requests: Path, edited: Edited
) -> None:
    # A replay that rounds its logits otherwise than an eager run: by some 1e-7 of their length.
    tree = edited(
        "cuda_graph/glm5.py",
        '                outputs["logits"].copy_(self.model.compute_logits(hidden))\n\n',
        '                outputs["logits"].copy_(self.model.compute_logits(hidden) * (1 + 2**-20))\n\n',
    )
    options: dict[str, object] = {"model": "tiny", "page_size": 16, "max_batch_size": 3}
    conditions = conditions_of(Setup(str(tree), (), 1, options))

    def judged(limit: float) -> tuple[int, Report]:
        bounds = tuple(
            Bound(Class.BUCKET, kind, 1, 9, largest, 1.0, bit_equal=largest == 0)
            for kind, largest in (("logits", limit), ("kv", 0.0))
        )
        save(tmp_path / "noise.json", NoiseFloor(conditions, bounds))
        noise = ("--noise", str(tmp_path / "noise.json"))
        return graphs(tmp_path, tree, "--requests", str(requests), *noise)

    assert graphs(tmp_path, tree, "--requests", str(requests))[0] == 1
    code, report = judged(1e-5)
    assert code == 0
    assert "32 of logits" in facts(report)["within noise"]
    code, report = judged(1e-8)
    assert code == 1
    assert "bound 1e-08" in report.findings[0].message


def test_bounds_of_other_conditions_are_refused_in_one_line(
    tmp_path: Path, requests: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = conditions_of(Setup(str(ROOT), (), 1, {"model": "tiny", "page_size": 8}))
    bound = Bound(Class.BUCKET, "logits", 1, 9, 1e-5, 1.0, bit_equal=False)
    save(tmp_path / "noise.json", NoiseFloor(elsewhere, (bound,)))
    given = ["graphs", *ENGINE, "--requests", str(requests), "--noise", str(tmp_path / "noise.json")]
    assert main(given) == 64
    assert "page_size 8 (here 16)" in capsys.readouterr().err


def test_an_output_that_only_one_run_has_is_no_verdict(
    tmp_path: Path, requests: Path, edited: Edited
) -> None:
    end = '            outputs["logits"].copy_(self.model.compute_logits(hidden))\n        return outputs\n'
    tree = edited(
        "cuda_graph/glm5.py",
        end,
        end.replace("        return", '        del outputs["kv_v"]\n        return'),
    )
    code, report = graphs(tmp_path, tree, "--requests", str(requests))
    assert code == 2
    assert report.verdict.headline.endswith("only one of replay and eager run has kv_v")


def test_a_worker_that_is_killed_leaves_no_verdict(tmp_path: Path, requests: Path, edited: Edited) -> None:
    tree = edited("cuda_graph/buffers.py", FILLED, "            import os; os.kill(os.getpid(), 9)\n")
    code, report = graphs(tmp_path, tree, "--requests", str(requests))
    assert code == 2
    assert report.verdict.headline == "No verdict: the worker was killed by SIGKILL"


def test_ctrl_c_leaves_no_worker_running(tmp_path: Path, requests: Path, edited: Edited) -> None:
    started = tmp_path / "started"
    tree = edited(
        "cuda_graph/buffers.py",
        FILLED,
        f"            open({str(started)!r}, 'w').write(str(__import__('os').getpid()))\n"
        "            __import__('time').sleep(600)\n",
    )
    command = [sys.executable, "-m", "shadow.cli", "graphs", "--tree", str(tree), *ENGINE]
    process = subprocess.Popen(
        [*command, "--requests", str(requests)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (started.is_file() and started.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in said
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
