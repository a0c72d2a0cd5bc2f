"""The worker before its slices, behind its gates on the handlers, and cleaned up: the same results, token for token."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.copies import copy_after, copy_before

pytestmark = [pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
NATIVE = {"BATCHGEN_WORKER_KV_NATIVE": "1", "BATCHGEN_WORKER_DECODE_NATIVE": "1"}
#: Both pools are too small for what is in flight: sequences are held, evicted and loaded again.
TIGHT = ["--page-size", "4", "--gpu-pages", "200", "--host-pages", "500", "--max-batch", "32"]


def write_requests(path: Path, count: int, longest: int) -> Path:
    draw = random.Random(9)
    with path.open("w", encoding="utf-8") as stream:
        for i in range(count):
            body = {
                "prompt": f"request {i}: " + "ab" * draw.randrange(2, 16),
                "max_tokens": draw.randrange(4, longest),
            }
            line = {"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions", "body": body}
            stream.write(json.dumps(line) + "\n")
    return path


def run(
    tree: Path, requests: Path, output: Path, ranks: int, *options: str, **environment: str
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(result lines by custom_id, the engine's counters)."""
    launcher = [sys.executable, "-P", "-m"]
    if ranks > 1:
        launcher += ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m"]
    done = subprocess.run(
        [
            *launcher,
            "batchgen",
            "run",
            str(requests),
            "-o",
            str(output),
            "--device",
            "cpu",
            "--json",
            *options,
        ],
        env={
            **os.environ,
            "PYTHONPATH": f"{tree}{os.pathsep}{ROOT}",
            "NUM_GPUS_PER_NODE": "1",
            "OMP_NUM_THREADS": "1",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = sorted(map(json.loads, output.read_text().splitlines()), key=lambda line: line["custom_id"])
    summary = json.loads(done.stdout.strip().splitlines()[-1])["engine"]
    return lines, {name: count for name, count in summary.items() if not name.endswith("_seconds")}


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("model", "ranks", "count", "longest", "options"),
    [
        ("smollm2", 1, 32, 48, ["--page-size", "16", "--max-batch", "16"]),
        ("tiny", 1, 2000, 24, TIGHT),
        ("tiny-dual", 1, 2000, 24, TIGHT),
        pytest.param("tiny", 2, 2000, 24, TIGHT, marks=pytest.mark.multirank),
        pytest.param("tiny-dual", 2, 2000, 24, TIGHT, marks=pytest.mark.multirank),
    ],
)
def test_legacy_native_and_cleaned_up_give_the_same_results(
    model: str, ranks: int, count: int, longest: int, options: list[str], tmp_path: Path
) -> None:
    requests = write_requests(tmp_path / "requests.jsonl", count, longest)
    before = copy_before(ROOT, tmp_path / "before")
    cleaned = copy_after(ROOT, tmp_path / "cleaned", "9.3")
    every = ["--model", model, *options]
    expected, counted = run(before, requests, tmp_path / "legacy.jsonl", ranks, *every)
    assert len(expected) == count
    assert all(line["response"]["body"]["batchgen"]["token_ids"] for line in expected)
    if options == TIGHT:
        assert counted["holds"] > 0
    native = run(ROOT, requests, tmp_path / "native.jsonl", ranks, *every, **NATIVE)
    assert native == (expected, counted)
    after = run(cleaned, requests, tmp_path / "cleaned.jsonl", ranks, *every)
    assert after == (expected, counted)
