"""Undo records: what the files of a write were before it, in `.migrate/undo/<number>/`.

A record is a folder with `record.json` and the old bytes of file i of its list in a file named i. The folder
around the records holds a `.gitignore` that hides all of it, itself included.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from migration.errors import MigrationError
from migration.ledger.disk import digest, read, write_synced

#: The folder of the records, relative to the root.
UNDO = ".migrate/undo"
#: How many records are kept.
KEPT = 20
_SCHEMA = 1


@dataclass(frozen=True)
class Touched:
    """One file of a write: hashes before and after it (None: no file), and its mode bits before it."""

    path: str
    old: str | None
    new: str | None
    mode: int | None = None

    @property
    def kind(self) -> str:
        if self.old is None:
            return "created"
        return "deleted" if self.new is None else "changed"


@dataclass(frozen=True)
class UndoRecord:
    """A write that can be taken back. `label` says what was done, `time` when (UTC, ISO 8601)."""

    number: int
    label: str
    time: str
    files: tuple[Touched, ...]
    #: Folders that the write made, outermost first.
    made: tuple[str, ...]
    folder: Path

    @property
    def name(self) -> str:
        return record_name(self.number)

    def old_bytes(self, index: int) -> bytes | None:
        """What file `index` held before the write, None if there was no file. Raises MG310."""
        wanted = self.files[index].old
        if wanted is None:
            return None
        data = read(self.folder / str(index))
        if data is None or digest(data) != wanted:
            raise MigrationError("MG310", f"{self.folder / str(index)} is not what the record says")
        return data


def record_name(number: int) -> str:
    return f"{number:04}"


def record_folders(root: Path) -> list[tuple[int, Path]]:
    """Number and folder of each record, oldest first."""
    try:
        entries = list(os.scandir(root / UNDO))
    except FileNotFoundError:
        return []
    return sorted((int(entry.name), Path(entry.path)) for entry in entries if entry.name.isdecimal())


def records(root: Path) -> tuple[UndoRecord, ...]:
    """The records under `root`, newest first. Raises MG310 for one that cannot be read."""
    return tuple(_load(number, folder) for number, folder in reversed(record_folders(root)))


def newest(root: Path) -> UndoRecord | None:
    """The record of the last write that was not undone."""
    folders = record_folders(root)
    return _load(*folders[-1]) if folders else None


def stage_record(
    folder: Path,
    label: str,
    time: str,
    files: Sequence[Touched],
    made: Sequence[str],
    old: Sequence[bytes | None],
) -> None:
    """Write a record's folder, all but the entries of `folder` itself durable."""
    folder.mkdir()
    for index, data in enumerate(old):
        if data is not None:
            write_synced(folder / str(index), data)
    content = {
        "schema": _SCHEMA,
        "label": label,
        "time": time,
        "files": [asdict(file) for file in files],
        "made": list(made),
    }
    write_synced(folder / "record.json", (json.dumps(content, indent=1) + "\n").encode())


def _load(number: int, folder: Path) -> UndoRecord:
    try:
        content: Any = json.loads((folder / "record.json").read_bytes())
        if content["schema"] != _SCHEMA:
            raise ValueError(f"schema {content['schema']}")
        files = tuple(Touched(**file) for file in content["files"])
        made = tuple(content["made"])
        outside = [path for path in (*made, *(file.path for file in files)) if not is_inside(path)]
        if outside:
            raise ValueError(f"{outside[0]} is outside the repository")
        return UndoRecord(number, str(content["label"]), str(content["time"]), files, made, folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise MigrationError("MG310", f"{folder / 'record.json'}: {error}") from error


def is_inside(path: str) -> bool:
    """Whether a relative path cannot lead out of its root."""
    parts = Path(path).parts
    return bool(parts) and not Path(path).is_absolute() and ".." not in parts
