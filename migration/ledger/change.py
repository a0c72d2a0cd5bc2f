"""What a run does to one file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FileChange:
    """New content of one file.

    `path` is relative to the root, with `/`. `before` is None for a file that is created, `after` is None
    for one that is deleted.
    """

    path: str
    before: bytes | None
    after: bytes | None
