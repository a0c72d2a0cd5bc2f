"""What a run does to one file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FileChange:
    """New content of one file; `before` is None for a file that is created."""

    path: str
    before: bytes | None
    after: bytes
