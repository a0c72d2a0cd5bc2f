"""`migrate inventory --score` from the shell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from .golden_cases import GOLDEN

ROOT = Path(__file__).resolve().parents[2]
WORKER = GOLDEN / "refusals" / "before" / "app" / "worker.py"


def migrate(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from migration.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_score_sums_up_and_names_what_is_refused():
    root = GOLDEN / "refusals" / "before"
    run = migrate("inventory", WORKER, "--class", "Worker", "--score", "--repo", root)
    assert run.returncode == 0, run.stderr
    assert "MG011" in run.stdout and "refused" in run.stdout.splitlines()[-1]
    body = json.loads(
        migrate("inventory", WORKER, "--class", "Worker", "--score", "--json", "--repo", root).stdout
    )
    assert body["tried"] == len(body["definitions"]) > body["movable"] > 0
    assert run.stdout.splitlines()[-1] == f"Worker: {body['line']}"


def test_a_file_outside_the_repository_is_one_clear_error(tmp_path: Path):
    run = migrate("inventory", WORKER, "--score", "--repo", tmp_path)
    assert run.returncode == 3 and "MG303" in run.stderr and "Traceback" not in run.stderr
