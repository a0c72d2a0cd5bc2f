"""Write several files as one: after a kill at any instant, `recover` leaves the old or the new tree.

The manifest is a redo log. Until it is renamed into place nothing of the tree has changed; from then
on every file can be finished from the staged copies, so recovery rolls forward.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from migration.errors import MigrationError
from migration.ledger.change import FileChange

JOURNAL = ".migrate-journal"
_MANIFEST = "manifest.json"


def _digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_synced(path: Path, data: bytes, mode: int | None = None) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    descriptor = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise MigrationError("MG307", f"{root} is locked") from error
    finally:
        os.close(descriptor)


def write_all(root: Path, changes: Sequence[FileChange]) -> None:
    """Write every change or none. Raises MG306 if a file is not what the plan was made from."""
    with _locked(root):
        _recover(root)
        for change in changes:
            if _read(root / change.path) != change.before:
                raise MigrationError("MG306", f"{change.path} is not the file that was planned on")
        try:
            _stage(root / JOURNAL, changes)
        except OSError:
            shutil.rmtree(root / JOURNAL, ignore_errors=True)  # nothing was begun
            raise
        os.replace(root / JOURNAL / "manifest.tmp", root / JOURNAL / _MANIFEST)
        _sync_directory(root / JOURNAL)
        _sync_directory(root)
        _finish(root)


def _stage(journal: Path, changes: Sequence[FileChange]) -> None:
    """New contents and a manifest that does not count yet, all of it on the disk."""
    journal.mkdir()
    entries = []
    for index, change in enumerate(changes):
        _write_synced(journal / str(index), change.after)
        entries.append({"path": change.path, "old": _digest(change.before), "new": _digest(change.after)})
    _write_synced(journal / "manifest.tmp", json.dumps(entries).encode())
    _sync_directory(journal)


def pending(root: Path) -> bool:
    """True when an earlier run was killed while it was writing."""
    return (root / JOURNAL).exists()


def recover(root: Path) -> bool:
    """Finish or forget an interrupted write; True if files were (or had been) brought to the new tree."""
    with _locked(root):
        return _recover(root)


def _recover(root: Path) -> bool:
    journal = root / JOURNAL
    if not journal.exists():
        return False
    if not (journal / _MANIFEST).exists():
        shutil.rmtree(journal)
        return False
    _finish(root)
    return True


def _finish(root: Path) -> None:
    """Bring every file of the manifest to its new content; files that are there already are left alone."""
    journal = root / JOURNAL
    entries = json.loads((journal / _MANIFEST).read_bytes())
    for entry in entries:
        if _digest(_read(root / entry["path"])) not in (entry["old"], entry["new"]):
            raise MigrationError(
                "MG305", f"{entry['path']} was changed after the interrupted write; see {journal}"
            )
    for index, entry in enumerate(entries):
        target = (root / entry["path"]).resolve()
        temporary = target.with_name(f".{target.name}.migrate-tmp")
        if _digest(_read(target)) != entry["new"]:
            data = (journal / str(index)).read_bytes()
            target.parent.mkdir(parents=True, exist_ok=True)
            mode = target.stat().st_mode & 0o7777 if target.exists() else None
            _write_synced(temporary, data, mode)
            os.replace(temporary, target)
        else:
            temporary.unlink(missing_ok=True)
        _sync_directory(target.parent)
    # Without the manifest the journal means nothing, so the manifest goes first.
    (journal / _MANIFEST).unlink()
    _sync_directory(journal)
    shutil.rmtree(journal)
