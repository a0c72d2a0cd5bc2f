"""What git says about the files that a run is about to change."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from migration.errors import MigrationError


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    return subprocess.run(
        ["git", "-C", str(root), "--literal-pathspecs", *arguments],
        capture_output=True,
        check=False,
        env=environment,
    )


def uncommitted(root: Path, paths: Sequence[str]) -> tuple[str, ...]:
    """Tracked files under `root` with changes, and those of `paths` that git does not know.

    Empty where there is nothing to lose track of: no git, no work tree, or `root` ignored by the
    repository around it (a scratch copy). Raises MG311 where there is a repository that git cannot read.
    """
    try:
        inside = _git(root, "rev-parse", "--is-inside-work-tree")
    except FileNotFoundError:
        return ()
    if inside.returncode and b"not a git repository" not in inside.stderr:
        raise _unreadable(inside)
    if inside.stdout.strip() != b"true" or _git(root, "check-ignore", "-q", ".").returncode == 0:
        return ()
    found = _status(root, "--untracked-files=no", "--", ".")
    if existing := [path for path in paths if (root / path).exists()]:
        found |= _status(root, "--untracked-files=all", "--", *existing)
    return tuple(sorted(found))


def _status(root: Path, *arguments: str) -> set[str]:
    status = _git(root, "status", "--porcelain", "--no-renames", "-z", *arguments)
    if status.returncode:
        raise _unreadable(status)
    return {os.fsdecode(entry[3:]) for entry in status.stdout.split(b"\0") if entry}


def _unreadable(run: subprocess.CompletedProcess[bytes]) -> MigrationError:
    said = os.fsdecode(run.stderr).strip().splitlines()
    return MigrationError("MG311", said[0] if said else f"git ends with {run.returncode}")


def knows(root: Path, data: bytes) -> bool:
    """True when the object store of the repository around `root` holds a file with these bytes."""
    name = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    try:
        return _git(root, "cat-file", "-e", name).returncode == 0
    except FileNotFoundError:
        return False


def content_at(root: Path, revision: str, path: str) -> bytes | None:
    """Bytes of a file at a revision, None where there is no such file or revision."""
    command = ["git", "-C", str(root), "show", f"{revision}:./{path}"]
    done = subprocess.run(command, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None
