"""Copies of a repository as it was before its first slice: what slices are taken out of, away from the user's tree."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from migration.code.tree import DiskTree, OverlayTree
from pipeline.config import load_config
from pipeline.stack import before

_IGNORED = shutil.ignore_patterns("__pycache__")


def tree_before(root: Path) -> OverlayTree:
    """The tree at `root` without any slice: the kept class, no handlers, no proofs. PipelineError as `load_config`."""
    tree = DiskTree(root)
    return OverlayTree(tree, {change.path: change.after for change in before(load_config(root), tree)})


def copy_before(root: Path, to: Path, folders: Iterable[str] = ("batchgen",)) -> Path:
    """`folders` of `root`, as `tree_before` has them, in `to`. PipelineError as `load_config`."""
    chosen = tuple(folders)
    for folder in chosen:
        shutil.copytree(root / folder, to / folder, ignore=_IGNORED)
    for change in before(load_config(root), DiskTree(root)):
        if change.path.partition("/")[0] not in chosen:
            continue
        if change.after is None:
            (to / change.path).unlink()
        else:
            (to / change.path).write_bytes(change.after)
    return to
