"""Several ranks, real processes: torchrun and gloo; two ranks on two nodes answer like one rank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .launched import results, run

pytestmark = pytest.mark.multirank

# The model with an index pool: a migration must move the auxiliary pages, too.
ENGINE = ["--model", "tiny-dual", "--page-size", "4", "--row-exact"]
SMALL = ["--gpu-pages", "24", "--host-pages", "60", "--max-batch", "4"]
ASSERTS = {"BATCHGEN_DECODE_ASSERT": "1"}


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


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("one")
    write_requests(folder / "requests.jsonl", 24)
    run(folder / "requests.jsonl", folder / "out.jsonl", *ENGINE, per_node=8, **ASSERTS)
    return folder / "requests.jsonl", results(folder / "out.jsonl")


def test_two_nodes_answer_like_one_rank_and_migrate(
    one_rank: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    requests, expected = one_rank
    output = tmp_path / "two.jsonl"
    summary = run(requests, output, *ENGINE, *SMALL, ranks=2, **ASSERTS)
    assert results(output) == expected
    assert summary["engine"]["migrations"] > 0, summary
    assert summary["engine"]["holds"] > 0, summary


@pytest.mark.slow
def test_two_ranks_of_one_node_share_a_host_pool(
    one_rank: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    requests, expected = one_rank
    output = tmp_path / "shared.jsonl"
    summary = run(requests, output, *ENGINE, *SMALL, ranks=2, per_node=2, **ASSERTS)
    assert results(output) == expected
    assert summary["engine"].get("migrations", 0) == 0


def test_a_rank_without_work_takes_part(tmp_path: Path) -> None:
    write_requests(tmp_path / "requests.jsonl", 1)
    run(tmp_path / "requests.jsonl", tmp_path / "one.jsonl", *ENGINE, per_node=8, **ASSERTS)
    run(tmp_path / "requests.jsonl", tmp_path / "two.jsonl", *ENGINE, ranks=2, **ASSERTS)
    assert results(tmp_path / "one.jsonl") == results(tmp_path / "two.jsonl")
