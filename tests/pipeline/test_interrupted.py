"""Whatever ends a run, the branches are whole, the user's tree is as it was, and the next run goes through."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.migration.status.lives import git

from .repository import branches, command, pipeline, repository, user_state, write

ALL = ["1.1", "1.2", "base"]


def ended_by(root: Path, number: int, line: str) -> subprocess.CompletedProcess[str]:
    """A run of `pr 1.2` that gets the signal once it says `line`."""
    argv, environment = command(root, "pr", "1.2")
    process = subprocess.Popen(
        argv, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    said = ""
    for text in process.stderr:
        said += text
        if text.startswith(line):
            os.kill(process.pid, number)
            break
    out, rest = process.communicate(timeout=300)
    return subprocess.CompletedProcess(argv, process.returncode, out, said + rest)


@pytest.mark.parametrize("line", ["the branches", "1.2: gate"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_whole_branches_or_none(number: int, line: str, tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    before = user_state(root)
    done = ended_by(root, number, line)
    if number != signal.SIGKILL:
        assert done.returncode == 130
        assert done.stderr.splitlines()[-1].startswith("pipeline: interrupted: ")
    assert user_state(root) == before
    assert sorted(branches(root)) in ([], ALL)
    assert not (root / "out/pr/1.2.md").exists()
    again = pipeline(root, "pr", "1.2")
    assert again.returncode == 0, again.stderr
    assert sorted(branches(root)) == ALL and (root / "out/pr/1.2.md").exists()


@pytest.mark.parametrize("broken", ["begun", "locked", "moved", "edited"])
def test_a_work_tree_that_a_kill_left_behind_is_made_anew(broken: str, tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    tree = root / "out/pr/tree"
    if broken == "begun":
        write(root, "out/pr/tree/.git", "gitdir: /nowhere\n")
        write(root, "out/pr/tree/app/left.py", "half a file")
    else:
        assert pipeline(root, "pr", "1.1").returncode == 0
    if broken == "locked":
        folder = Path(git(tree, "rev-parse", "--absolute-git-dir").strip())
        (folder / "index.lock").write_text("")
    elif broken == "moved":
        root = root.rename(tmp_path / "elsewhere")
    elif broken == "edited":
        write(tree, "app/worker.py", "broken = True\n")
        write(tree, "app/left.py", "import torch\n")
    done = pipeline(root, "pr", "1.2")
    assert done.returncode == 0, done.stderr
    tree = root / "out/pr/tree"
    assert git(tree, "rev-parse", "HEAD").strip() == branches(root)["1.2"]
    assert git(tree, "status", "--porcelain") == "" and not (tree / "app/left.py").exists()


def test_two_runs_at_once_are_one_too_many(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    folder = root / "out/pr"
    folder.mkdir(parents=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = pipeline(root, "pr", "1.1")
    assert done.returncode == 2 and not branches(root)
    assert (
        done.stderr
        == f"pipeline: another run is at work in {folder}: wait for it, or end it; then run again\n"
    )
