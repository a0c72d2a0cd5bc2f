"""The spill store: one file a parked sequence, in a folder with a byte budget."""

from __future__ import annotations

import io
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

from batchgen.scheduler.errors import SpillError
from batchgen.scheduler.spill_folder import OwnFolder

_BUFFER = 1 << 20


@dataclass(frozen=True, slots=True)
class SpillUsage:
    """Bytes of whole and of half-written entries; `peak_bytes` since the store was opened."""

    entries: int
    bytes: int
    peak_bytes: int
    budget: int


class FileSpill:
    """A `SpillIo` of any number of threads; a context manager.

    Each process has a folder of its own in `directory`, which goes with it: what dead processes left is swept when a
    store is opened, what live ones hold is not touched. An entry is written under a temporary name; `record_usage`
    gives it its own.
    """

    def __init__(self, directory: Path, budget: int) -> None:
        """`budget`: bytes of all entries of this process. SpillError where the folder cannot be made or locked."""
        if budget <= 0:
            raise SpillError(f"a spill budget of {budget} bytes holds nothing; give a positive number")
        self._budget = budget
        self._lock = threading.Lock()
        self._next = 0
        self._sizes: dict[int, int] = {}
        self._peak = 0
        self._folder = OwnFolder(directory)

    def create(self) -> tuple[int, BinaryIO]:
        """SpillError: the budget is used up, or the file cannot be made. The writer raises it where an entry grows
        beyond what is left."""
        with self._lock:
            if sum(self._sizes.values()) >= self._budget:
                raise SpillError(f"the spill budget of {self._budget} bytes is used up")
            swap_id, self._next = self._next, self._next + 1
            self._sizes[swap_id] = 0
        try:
            raw = _Metered(self._draft(swap_id), self, swap_id)
        except OSError as error:
            self._forget(swap_id)
            raise SpillError(f"cannot create {self._draft(swap_id)}: {error.strerror}") from error
        return swap_id, cast(BinaryIO, io.BufferedWriter(raw, _BUFFER))

    def record_usage(self, swap_id: int) -> None:
        """The entry is whole. OSError: it cannot be renamed."""
        os.replace(self._draft(swap_id), self._path(swap_id))

    def open(self, swap_id: int) -> BinaryIO:
        """SpillError: there is no such whole entry, or it cannot be read."""
        try:
            return self._path(swap_id).open("rb")
        except OSError as error:
            raise SpillError(f"cannot open spill entry {swap_id}: {error.strerror}") from error

    def remove(self, swap_id: int) -> None:
        """Whole or not. SpillError: it cannot be removed, and still counts against the budget."""
        try:
            for path in (self._draft(swap_id), self._path(swap_id)):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise SpillError(f"cannot remove spill entry {swap_id}: {error.strerror}") from error
        self._forget(swap_id)

    def usage(self) -> SpillUsage:
        with self._lock:
            return SpillUsage(len(self._sizes), sum(self._sizes.values()), self._peak, self._budget)

    def close(self) -> None:
        """Removes all that this process holds."""
        self._folder.close()
        with self._lock:
            self._sizes.clear()

    def __enter__(self) -> FileSpill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def grow(self, swap_id: int, size: int) -> None:
        """Books `size` bytes more of an entry before they are written. SpillError: they are over the budget."""
        with self._lock:
            used = sum(self._sizes.values())
            if used + size > self._budget:
                raise SpillError(
                    f"{size} more bytes do not fit the spill budget: {used} of {self._budget} used"
                )
            self._sizes[swap_id] += size
            self._peak = max(self._peak, used + size)

    def _forget(self, swap_id: int) -> None:
        with self._lock:
            self._sizes.pop(swap_id, None)

    def _draft(self, swap_id: int) -> Path:
        return self._folder.path / f"{swap_id}.partial"

    def _path(self, swap_id: int) -> Path:
        return self._folder.path / f"{swap_id}.kv"


class _Metered(io.FileIO):
    """A file whose every byte is booked before it is written."""

    def __init__(self, path: Path, store: FileSpill, swap_id: int) -> None:
        super().__init__(path, "xb")
        self._store = store
        self._swap_id = swap_id

    def write(self, data: object) -> int:
        self._store.grow(self._swap_id, memoryview(data).nbytes)  # type: ignore[arg-type]
        return super().write(data)  # type: ignore[arg-type]
