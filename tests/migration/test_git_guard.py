"""What counts as uncommitted work: what a write could lose and git could not bring back."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from migration.errors import MigrationError
from migration.ledger.git import uncommitted

from .test_cli import git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "pkg").mkdir(parents=True)
    for name in ("a.py", "pkg/b.py", "[ab].py"):
        (root / name).write_text("x = 1\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "start")
    return root


def test_a_clean_tree_and_files_that_nobody_writes_are_nothing(repository: Path):
    (repository / "notes.txt").write_text("mine")
    assert uncommitted(repository, ["a.py", "pkg/new.py"]) == ()


def test_every_kind_of_change_is_found_under_its_name(repository: Path):
    (repository / "a.py").write_text("x = 2\n")
    git(repository, "mv", "pkg/b.py", "pkg/c.py")
    (repository / "pkg/mine.py").write_text("untracked")
    (repository / "pkg/other.py").write_text("untracked, but nobody writes it")
    expected = ("a.py", "pkg/b.py", "pkg/c.py", "pkg/mine.py")
    assert uncommitted(repository, ["pkg/mine.py"]) == expected


def test_a_name_is_no_pattern(repository: Path):
    (repository / "b.py").write_text("untracked")
    assert uncommitted(repository, ["[ab].py"]) == ()


def test_a_name_that_is_no_utf8_does_not_stop_the_guard(repository: Path):
    odd = os.fsdecode(b"\xe9.py")
    (repository / odd).write_text("x")
    assert uncommitted(repository, [odd]) == (odd,)


def test_a_folder_under_no_version_control_is_not_guarded(tmp_path: Path):
    (tmp_path / "a.py").write_text("x")
    assert uncommitted(tmp_path, ["a.py"]) == ()


@pytest.mark.parametrize("damage", ["config", "index"])
def test_a_repository_that_git_cannot_read_is_not_taken_for_none(repository: Path, damage: str):
    (repository / ".git" / damage).write_bytes(b"[broken")
    with pytest.raises(MigrationError) as error:
        uncommitted(repository, ["a.py"])
    assert error.value.code == "MG311" and "git" in str(error.value) + error.value.way_out


def test_a_repository_of_somebody_else_is_not_taken_for_none(
    repository: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert subprocess.run(["git", "-C", repository, "status"], capture_output=True, check=False).returncode
    with pytest.raises(MigrationError, match="dubious ownership") as error:
        uncommitted(repository, ["a.py"])
    assert error.value.code == "MG311"
