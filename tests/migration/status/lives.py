"""Repositories with a slice in each phase, made as a user makes them: by the commands, with dated commits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.migration.golden_cases import GOLDEN
from tests.migration.test_cli import migrate

CASE = GOLDEN / "handles"
RECIPE = CASE / "slice.toml"
DAY = 86_400


def git(root: Path, *arguments: str, days_ago: float = 0) -> str:
    """git under a fixed identity, at a time in the past."""
    when = f"{int(time.time() - days_ago * DAY)} +0000"
    who = {
        f"GIT_{role}_{what}": "t@example.com"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    dates = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when, "GIT_CONFIG_GLOBAL": os.devnull}
    return subprocess.run(
        ["git", "-C", str(root), *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **who, **dates},
    ).stdout


def commit(root: Path, message: str, days_ago: float = 0) -> str:
    """Everything in the tree as one commit; its id."""
    git(root, "add", "-A")
    git(root, "commit", "-qm", message, days_ago=days_ago)
    return git(root, "rev-parse", "HEAD").strip()


def start(root: Path, days_ago: float = 40) -> Path:
    """The case before any phase, committed."""
    shutil.copytree(CASE / "before", root, ignore=shutil.ignore_patterns("__pycache__"))
    git(root, "init", "-q", "-b", "main")
    commit(root, "start", days_ago)
    return root


def phase(root: Path, name: str) -> None:
    done = migrate(name, RECIPE, "--repo", root)
    assert done.returncode == 0, done.stderr


def status(root: Path, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    done = migrate("status", RECIPE, "--repo", root, "--json", *arguments)
    assert done.returncode == code, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def of_case(value: dict[str, Any]) -> dict[str, Any]:
    """The slice of the case among all that are listed."""
    found: dict[str, Any] = next(one for one in value["slices"] if one["slice"] == "handles")
    return found


def burndown(root: Path, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    done = migrate("burndown", "app/worker.py", "--repo", root, "--json", *arguments)
    assert done.returncode == code, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    return value
