"""A folder that belongs to one process for as long as it lives, among those of others.

Whose process is alive shows in a lock on its folder: it goes with the process, whatever kills it, where a process
number may come back. Looking for dead ones and taking a folder of one's own happen under a lock of the whole directory:
nobody sees a folder that has no lock yet.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from batchgen.scheduler.errors import SpillError

_PREFIX = "batchgen-spill-"


class OwnFolder:
    """`path` is this process's; what dead processes left in `directory` is gone. SpillError where it cannot be had."""

    def __init__(self, directory: Path) -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with _whole(directory):
                _sweep(directory)
                self.path = directory / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
                self.path.mkdir(mode=0o700)  # what is spilled is what somebody has written
                self._lock = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SpillError(
                f"cannot use {directory} for spilled sequences: {error.strerror or error}; give another folder"
            ) from error

    def close(self) -> None:
        """The folder and all in it are gone. Once or more."""
        if self._lock < 0:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        self._lock = -1


@contextmanager
def _whole(directory: Path) -> Iterator[None]:
    lock = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _sweep(directory: Path) -> None:
    for folder in directory.glob(f"{_PREFIX}*/"):
        if _is_dead(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_dead(folder: Path) -> bool:
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # gone meanwhile, or somebody else's
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
