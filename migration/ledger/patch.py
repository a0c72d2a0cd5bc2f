"""Unified diffs that `git apply` takes."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from migration.ledger.change import FileChange

_ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}


def patch(changes: Iterable[FileChange], executable: Collection[str] = ()) -> bytes:
    """One patch for all changes; files that are created or deleted get git's header for that.

    `executable` names those files of the tree that are: git compares the mode of what it deletes.
    """
    return b"".join(
        _one(change, change.path in executable) for change in changes if change.before != change.after
    )


def _lines(data: bytes) -> list[str]:
    # Only \n ends a line for git; a form feed or \r\n does not. latin-1 maps every byte to itself.
    text = data.decode("latin-1")
    return [line + "\n" for line in text.split("\n")[:-1]] + (
        [text.split("\n")[-1]] if text[-1:] != "\n" else []
    )


def _quoted(name: str) -> bytes:
    """A name as git writes it: in quotes and escaped if it holds a quote, a backslash or a control character."""
    raw = name.encode("utf-8", "surrogateescape")
    if not any(byte < 32 or byte in (34, 92, 127) for byte in raw):
        return raw
    parts = (
        f"\\{_ESCAPES[byte]}".encode()
        if byte in _ESCAPES
        else f"\\{byte:03o}".encode()
        if byte < 32 or byte >= 127
        else bytes((byte,))
        for byte in raw
    )
    return b'"' + b"".join(parts) + b'"'


def _one(change: FileChange, executable: bool) -> bytes:
    old, new = _quoted(f"a/{change.path}"), _quoted(f"b/{change.path}")
    header = b"diff --git %b %b\n" % (old, new)
    if change.before is None:
        header += b"new file mode 100644\n"
        old = b"/dev/null"
    if change.after is None:
        header += b"deleted file mode 100755\n" if executable else b"deleted file mode 100644\n"
        new = b"/dev/null"
    before = _lines(change.before) if change.before else []
    after = _lines(change.after) if change.after else []
    hunks = list(difflib.unified_diff(before, after))[2:]
    if not hunks:  # an empty file comes or goes
        return header
    # A tab ends a name with spaces; without one `patch` would cut it short.
    marks = (b"\t" if b" " in name else b"" for name in (old, new))
    header += b"--- %b%b\n+++ %b%b\n" % (old, next(marks), new, next(marks))
    body = "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in hunks
    )
    return header + body.encode("latin-1")
