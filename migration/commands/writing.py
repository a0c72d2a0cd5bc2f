"""The edge of every command that writes: recovery first, then the patch, the check or the guarded write."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from migration.code.encoding import as_utf8, read_text
from migration.errors import MigrationError
from migration.ledger.change import FileChange
from migration.ledger.git import uncommitted
from migration.ledger.journal import pending, recover, write_all
from migration.ledger.patch import patch


def open_repository(arguments: argparse.Namespace) -> Path:
    """The root that the command works on; an interrupted write is finished first (MG305 on a dry run)."""
    root: Path = arguments.root.resolve()
    if not root.is_dir():
        raise MigrationError("MG303", f"{root} is not a directory")
    if pending(root):
        if is_dry(arguments):
            raise MigrationError("MG305", f"{root} holds one; `migrate undo --list` there finishes it")
        if finished := recover(root):
            print(
                f"migrate: an earlier write was interrupted and is now finished: {finished}", file=sys.stderr
            )
    return root


def is_dry(arguments: argparse.Namespace) -> bool:
    return bool(getattr(arguments, "diff", False) or getattr(arguments, "check", False))


def write(
    root: Path, changes: Sequence[FileChange], arguments: argparse.Namespace, label: str | None = None
) -> None:
    """Print the patch (--diff), do nothing (--check), or write all files unless the tree is dirty (MG304).

    `label` is what `migrate undo` calls this write; default: the command and its slice.
    """
    changes = [_as_stored(root, change) for change in changes]
    if is_dry(arguments):
        if arguments.diff and not arguments.json:
            executable = {change.path for change in changes if os.access(root / change.path, os.X_OK)}
            sys.stdout.buffer.write(patch(changes, executable))
        return
    if not arguments.allow_dirty and (dirty := uncommitted(root, [change.path for change in changes])):
        shown = ", ".join(dirty[:5]) + (f" and {len(dirty) - 5} more" if len(dirty) > 5 else "")
        raise MigrationError("MG304", f"not committed: {shown}")
    write_all(root, changes, label=label or described(arguments))


def _as_stored(root: Path, change: FileChange) -> FileChange:
    """The change in the encoding of the file on disk, which the planners saw as UTF-8."""
    file = root / change.path
    if change.before is None or not change.path.endswith(".py") or not file.is_file():
        return change
    raw = file.read_bytes()
    if raw == change.before or as_utf8(raw) != change.before:
        return change
    text = read_text(change.path, raw)
    return FileChange(change.path, raw, None if change.after is None else text.restore(change.after))


def described(arguments: argparse.Namespace) -> str:
    """The command as a user would name it: `port --cut kv`."""
    words = [arguments.command]
    if getattr(arguments, "cut", False):
        words.append("--cut")
    words += [
        str(getattr(arguments, name))
        for name in ("slice", "target", "method")
        if getattr(arguments, name, None)
    ]
    return " ".join(words)
