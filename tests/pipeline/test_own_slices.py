"""The pull requests of this repository's own slices, from a clean clone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config import load_config
from reports import from_json
from tests.migration.status.lives import git

from .repository import branches, pipeline, user_state

ROOT = Path(__file__).resolve().parents[2]
CONFIG = load_config(ROOT)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("clone") / "repo"
    git(ROOT, "clone", "-q", str(ROOT), str(root))
    return root


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["1", "2", "3"])
@pytest.mark.parametrize("number", [one.number for one in CONFIG.slices if one.number in (5, 9)])
def test_each_holds_and_leaves_the_user_alone(number: int, phase: str, clone: Path) -> None:
    name = f"{number}.{phase}"
    before = user_state(clone)
    done = pipeline(clone, "pr", name, "--scale", "caps/32,prompts/32")
    assert done.returncode == 0, done.stdout + done.stderr
    assert user_state(clone) == before and name in branches(clone)
    report = from_json((clone / f"out/pr/{name}.json").read_bytes())
    steps = {check.name: check.count for check in report.checks}
    assert all(steps.values()) and {"verify", "check"} <= {step.partition(" ")[0] for step in steps}
    if phase == "2":
        (calls,) = [table.rows for table in report.tables if table.title == "Compared calls"]
        assert sum(int(count.replace(",", "")) for _, count in calls) > 0
