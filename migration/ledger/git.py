"""What git says about the files that a run is about to change."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)


def uncommitted(root: Path, paths: Sequence[str]) -> tuple[str, ...]:
    """Tracked files under `root` with changes, and those of `paths` that git does not know.

    Empty where there is nothing to lose track of: no git, no work tree, or `root` ignored by the
    repository around it (a scratch copy).
    """
    try:
        if _git(root, "rev-parse", "--is-inside-work-tree").stdout.strip() != "true":
            return ()
    except FileNotFoundError:
        return ()
    if _git(root, "check-ignore", "-q", ".").returncode == 0:
        return ()
    existing = [path for path in paths if (root / path).exists()]
    changed = _git(root, "status", "--porcelain", "-z", "--untracked-files=no", "--", ".").stdout
    unknown = _git(root, "status", "--porcelain", "-z", "--", *existing).stdout if existing else ""
    found = {entry[3:] for entry in (changed + unknown).split("\0") if len(entry) > 3}
    return tuple(sorted(found))
