"""The real worker before and after the KV section is ported, and with one page lost in the ported handler."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.copies import copy_before
from reports import Report, Status
from shadow.compare import compare_trees
from shadow.demo_fault import plant

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(the worker as it was before its slices, the same with the KV slice cut out)."""
    legacy, ported = (copy_before(ROOT, tmp_path_factory.mktemp(name)) for name in ("legacy", "ported"))
    migrate = "import sys; from migration.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["port", "kv", "--cut", "--root", str(ported), "--allow-dirty"]
    command = [sys.executable, "-c", migrate, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return legacy, ported


def compared(legacy: Path, candidate: Path, tmp_path: Path, model: str) -> Report:
    requests = tmp_path / "requests.jsonl"
    url = "/v1/completions"
    lines = [
        {"custom_id": f"r{i}", "method": "POST", "url": url, "body": {"prompt": prompt, "max_tokens": tokens}}
        for i, (prompt, tokens) in enumerate(
            [("a short one", 9), ("the longest of the three prompts", 14), ("x", 6)]
        )
    ]
    requests.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = {"model": model, "page_size": 2, "gpu_kv_pages": 40, "host_kv_pages": 200, "max_batch_size": 2}
    return compare_trees(legacy, candidate, requests, options, threads=1, timeout=120)


@pytest.mark.parametrize("model", ["tiny", "tiny-dual"])
def test_the_ported_worker_equals_the_original_in_every_kind(
    trees: tuple[Path, Path], tmp_path: Path, model: str
) -> None:
    report = compared(*trees, tmp_path, model)
    assert report.verdict.exit_code == 0, report
    assert "A/A" not in report.verdict.headline, "the port changed nothing"
    assert all(check.status is Status.PASS and check.count for check in report.checks)
    assert len(report.checks) >= 10


def test_one_page_less_in_the_ported_handler_is_found_in_the_sequence_that_lost_it(
    trees: tuple[Path, Path], tmp_path: Path
) -> None:
    legacy, ported = trees
    faulty = tmp_path / "faulty"
    shutil.copytree(ported, faulty)
    plant(faulty)
    report = compared(legacy, faulty, tmp_path, "tiny")
    assert report.verdict.exit_code == 1
    loading = report.findings[0]
    where = {fact.name: fact.value for fact in loading.where}
    assert (loading.code, where["step"], where["sequence"]) == ("effects", "0", "r1")
    assert loading.expected is not None and loading.actual is not None
    assert loading.expected.startswith("host.primary.async_load_layer_paged_kv_to_device(r0: ")
    assert int(loading.expected.split("r1: ")[1].rstrip(")")) == 1 + int(
        loading.actual.split("r1: ")[1].rstrip(")")
    )
    content = next(finding for finding in report.findings if finding.code == "kv")
    where = {fact.name: fact.value for fact in content.where}
    assert (where["step"], where["sequence"], where["layer"]) == ("0", "r1", "0")
    # 32 bytes and perhaps a bos: the last page of the prompt is the one that was not loaded
    assert where["field"].startswith("primary.k.page[")
    late = [finding.message for finding in report.findings if "does not" in finding.message]
    assert late, "what was not loaded was not a number"
