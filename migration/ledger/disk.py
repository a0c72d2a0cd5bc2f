"""Bytes to the disk: what these functions write is there after a loss of power."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path


def digest(data: bytes | None) -> str | None:
    """SHA-256 in hex; None for a file that is not there."""
    return None if data is None else hashlib.sha256(data).hexdigest()


def read(path: Path) -> bytes | None:
    """Bytes of a file, None where there is nothing. Raises OSError for a folder or anything else."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def write_synced(path: Path, data: bytes, *, mode: int | None = None, like: Path | None = None) -> None:
    """Write and sync a file. It gets `mode`, or that of a new file; its owner is that of `like` if it may be."""
    try:
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            if like is not None and like.exists():
                owner = like.stat()
                with contextlib.suppress(OSError):  # who is not root cannot give a file away
                    os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
    except OSError as error:
        # A full disk is found while writing, where the system does not know the name.
        error.filename = error.filename or str(path)
        raise


def sync_directories(paths: Iterable[Path]) -> None:
    """Make the entries of these folders durable; folders that are gone are skipped."""
    for path in dict.fromkeys(paths):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a file system that cannot sync folders
                error.filename = str(path)
                raise
        finally:
            os.close(descriptor)


def missing_folders(path: Path) -> list[Path]:
    """The folders above `path` that are not there, outermost first."""
    found = []
    for folder in path.parents:
        if folder.exists():
            break
        found.append(folder)
    return found[::-1]


def remove_folder_if_empty(folder: Path) -> bool:
    """Remove `folder` if it holds nothing; Python's caches of files that are gone count as nothing."""
    try:
        inside = [entry for entry in os.scandir(folder) if entry.name != "__pycache__"]
        cache = folder / "__pycache__"
        if inside or (cache.exists() and any(not entry.name.endswith(".pyc") for entry in os.scandir(cache))):
            return False
        if cache.exists():
            shutil.rmtree(cache)
        folder.rmdir()
    except OSError:  # not a folder, not ours, or filled meanwhile: it stays
        return False
    return True
