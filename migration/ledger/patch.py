"""Unified diffs that `git apply` takes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from migration.ledger.change import FileChange


def patch(changes: Iterable[FileChange]) -> bytes:
    """One patch for all changes; files that are created get git's header for that."""
    return b"".join(_one(change) for change in changes if change.before != change.after)


def _lines(data: bytes) -> list[str]:
    # Only \n ends a line for git; a form feed or \r\n does not. latin-1 maps every byte to itself.
    text = data.decode("latin-1")
    return [line + "\n" for line in text.split("\n")[:-1]] + (
        [text.split("\n")[-1]] if text[-1:] != "\n" else []
    )


def _one(change: FileChange) -> bytes:
    header = f"diff --git a/{change.path} b/{change.path}\n"
    if change.before is None:
        header += "new file mode 100644\n"
    before = _lines(change.before) if change.before else []
    old = "/dev/null" if change.before is None else f"a/{change.path}"
    hunks = list(difflib.unified_diff(before, _lines(change.after), old, f"b/{change.path}"))
    body = "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in hunks
    )
    return header.encode() + body.encode("latin-1")
