"""The worker before its slices, behind its gates on the handlers, and cleaned up: the same results, token for token."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pipeline.copies import copy_after, copy_before
from tests.batchgen.worker.launched import ROOT, counted, results, run

pytestmark = [pytest.mark.slow]
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


def answers(
    tree: Path, requests: Path, ranks: int, *options: str, **environment: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(result lines by custom_id, the engine's counters)."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "results.jsonl")
        summary = run(requests, output, *options, tree=tree, ranks=ranks, timeout=1800, **environment)
        return results(output), counted(summary)


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
    expected, monolith = answers(before, requests, ranks, *every)
    assert len(expected) == count
    assert all(line["response"]["body"]["batchgen"]["token_ids"] for line in expected.values())
    if options == TIGHT:
        assert monolith["holds"] > 0
    assert answers(ROOT, requests, ranks, *every, **NATIVE) == (expected, monolith)
    assert answers(cleaned, requests, ranks, *every) == (expected, monolith)
