"""Copies of a repository before its first slice, and after a pull request, away from the user's tree."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from migration.code.tree import DiskTree, OverlayTree
from migration.ledger.change import FileChange
from pipeline.config import load_config
from pipeline.stack import before, pull_requests

_IGNORED = shutil.ignore_patterns("__pycache__")


def tree_before(root: Path) -> OverlayTree:
    """The tree at `root` without any slice: the kept class, no handlers, no proofs. PipelineError as `load_config`."""
    tree = DiskTree(root)
    return OverlayTree(tree, {change.path: change.after for change in before(load_config(root), tree)})


def copy_before(root: Path, to: Path, folders: Iterable[str] = ("batchgen",)) -> Path:
    """`folders` of `root`, as `tree_before` has them, in `to`. PipelineError as `load_config`."""
    return _copy(root, to, folders, before(load_config(root), DiskTree(root)))


def copy_after(root: Path, to: Path, last: str, folders: Iterable[str] = ("batchgen",)) -> Path:
    """`folders` of `root` as the pull request `last` ("9.3") leaves them, in `to`. PipelineError as `pull_requests`."""
    tree = DiskTree(root)
    stack = pull_requests(load_config(root), tree, last)
    done = [change for stage in stack.stages for change in stage.changes]
    return _copy(root, to, folders, (*stack.base, *done))


def _copy(root: Path, to: Path, folders: Iterable[str], changes: Iterable[FileChange]) -> Path:
    chosen = tuple(folders)
    for folder in chosen:
        shutil.copytree(root / folder, to / folder, ignore=_IGNORED)
    for change in changes:
        if change.path.partition("/")[0] not in chosen:
            continue
        if change.after is None:
            (to / change.path).unlink(missing_ok=True)
        else:
            (to / change.path).write_bytes(change.after)
    return to
