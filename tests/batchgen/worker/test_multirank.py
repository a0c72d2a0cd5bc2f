"""Several ranks, real processes: torchrun and gloo; two ranks on two nodes answer like one rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.multirank

# The model with an index pool: a migration must move the auxiliary pages, too.
ENGINE = ["--model", "tiny-dual", "--device", "cpu", "--page-size", "4", "--row-exact", "--json"]


def write_requests(path: Path, count: int) -> None:
    """Long requests first in turn, so that the nodes' host pools fill unevenly."""
    with path.open("w", encoding="utf-8") as stream:
        for i in range(count):
            body = {
                "model": "tiny-dual",
                "prompt": f"request number {i}: " + "ab" * (i * 5 % 23),
                "max_tokens": 4 + (i * 7) % 40,
                "temperature": 0 if i % 3 else 0.8,
                "seed": i,
            }
            stream.write(
                json.dumps({"custom_id": f"m{i}", "method": "POST", "url": "/v1/completions", "body": body})
                + "\n"
            )


def run(requests: Path, output: Path, *, ranks: int, per_node: int, options: list[str]) -> dict[str, Any]:
    """The summary that `batchgen run --json` prints."""
    launcher = [sys.executable, "-m"]
    if ranks > 1:
        launcher += ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m"]
    done = subprocess.run(
        [*launcher, "batchgen", "run", str(requests), "-o", str(output), *ENGINE, *options],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={
            **os.environ,
            "NUM_GPUS_PER_NODE": str(per_node),
            "BATCHGEN_DECODE_ASSERT": "1",
            "OMP_NUM_THREADS": "1",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def results(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        assert record["custom_id"] not in found
        found[record["custom_id"]] = record
    return found


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("one")
    write_requests(folder / "requests.jsonl", 24)
    run(folder / "requests.jsonl", folder / "out.jsonl", ranks=1, per_node=8, options=[])
    return folder / "requests.jsonl", results(folder / "out.jsonl")


def test_two_nodes_answer_like_one_rank_and_migrate(
    one_rank: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    requests, expected = one_rank
    output = tmp_path / "two.jsonl"
    options = ["--gpu-pages", "24", "--host-pages", "60", "--max-batch", "4"]
    summary = run(requests, output, ranks=2, per_node=1, options=options)
    assert results(output) == expected
    assert summary["engine"]["migrations"] > 0, summary
    assert summary["engine"]["holds"] > 0, summary


def test_two_ranks_of_one_node_share_a_host_pool(
    one_rank: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    requests, expected = one_rank
    output = tmp_path / "shared.jsonl"
    options = ["--gpu-pages", "24", "--host-pages", "60", "--max-batch", "4"]
    summary = run(requests, output, ranks=2, per_node=2, options=options)
    assert results(output) == expected
    assert summary["engine"].get("migrations", 0) == 0


def test_a_rank_without_work_takes_part(tmp_path: Path) -> None:
    write_requests(tmp_path / "requests.jsonl", 1)
    run(tmp_path / "requests.jsonl", tmp_path / "one.jsonl", ranks=1, per_node=8, options=[])
    run(tmp_path / "requests.jsonl", tmp_path / "two.jsonl", ranks=2, per_node=1, options=[])
    assert results(tmp_path / "one.jsonl") == results(tmp_path / "two.jsonl")
