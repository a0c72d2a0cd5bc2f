"""Lines changed in the files of a slice since a revision: what `git diff --numstat` says of the work tree."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from migration.check.subject import Changed
from migration.errors import MigrationError


def changed_since(root: Path, base: str | None, paths: Sequence[str]) -> Changed | None:
    """None where there is no repository. Without `base` it is HEAD, or its parent where the files are committed.

    A file that git does not know counts with all of its lines.
    """
    if not _git(root, "rev-parse", "--verify", "-q", "HEAD^{commit}"):
        if base is not None:
            raise MigrationError("MG311", f"there is no revision in {root} to compare with")
        return None
    if base is not None:
        if not _git(root, "rev-parse", "--verify", "-q", f"{base}^{{commit}}"):
            raise MigrationError("MG311", f"git knows no revision {base}")
        return _count(root, base, paths)
    changed = _count(root, "HEAD", paths)
    if not changed.files and _git(root, "rev-parse", "--verify", "-q", "HEAD~1^{commit}"):
        return _count(root, "HEAD~1", paths)
    return changed


def _count(root: Path, base: str, paths: Sequence[str]) -> Changed:
    added = deleted = 0
    files: list[str] = []
    for line in _git(
        root, "diff", "--numstat", "--no-renames", "--relative", base, "--", *paths
    ).splitlines():
        plus, minus, path = line.split("\t", 2)
        added += int(plus) if plus.isdecimal() else 0
        deleted += int(minus) if minus.isdecimal() else 0
        files.append(path)
    for path in _git(root, "ls-files", "--others", "--exclude-standard", "--", *paths).splitlines():
        added += (root / path).read_bytes().count(b"\n")
        files.append(path)
    return Changed(base, added, deleted, tuple(files))


def _git(root: Path, *arguments: str) -> str:
    """Standard output of a git command, "" where it fails or there is no git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            check=False,
            errors="replace",
        )
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""
