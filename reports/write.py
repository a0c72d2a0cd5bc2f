"""Writes one rendered report to a file: whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


class ReportWriteError(RuntimeError):
    """The file could not be written; the message says which and why."""


def write_report(path: Path, text: str) -> None:
    """Writes `text` (UTF-8) to `path`, creating its folder; an existing file is replaced atomically."""
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            temporary = file.name
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        raise ReportWriteError(f"cannot write the report {path}: {error.strerror}") from error
