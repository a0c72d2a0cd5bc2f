"""The results file: one writer, whole lines only, resumable.

Each line is written with one system call and never buffered here, so a killed process loses no line that it
has reported; ``fsync`` follows at most ``SYNC_SECONDS`` later and at the end, so a crashed machine loses
little more. A write that fails half-way (a full disk) is cut back to the last whole line. The lock is
``flock`` on the file itself: it vanishes with its process, whatever kills it. What is not a regular file
(``-``, a pipe, a device) is only written.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from batchgen.requests.results import ID_PREFIX, fingerprint_of
from batchgen.requests.types import OutputBusyError, OutputConflictError, OutputError

SYNC_SECONDS = 5.0
_LINE_START = b'{"id":"' + ID_PREFIX.encode()


class _Failure(msgspec.Struct):
    code: str | None = None


class FinishedLine(msgspec.Struct):
    """What resuming needs of a result line."""

    id: str
    custom_id: str | None
    error: _Failure | None


@dataclass(frozen=True)
class Finished:
    """What the results file already holds of the present requests."""

    ids: frozenset[str] = frozenset()
    custom_ids: frozenset[str] = frozenset()
    num_lines: int = 0
    num_errors: int = 0


class ResultFile:
    """An open, locked results file; a context manager."""

    def __init__(self, path: str | Path) -> None:
        """Open ``path``, creating it and its folders; "-" is standard output.

        Raises OutputBusyError where another process has it, OutputError where it cannot be opened.
        """
        self.path = str(path)
        self.num_written = 0
        self._end = 0
        self._last_sync = time.monotonic()
        try:
            if self.path == "-":
                self._fd = os.dup(1)
            else:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise OutputError(f"cannot open {self.path} for the results: {error.strerror}") from error
        self.resumable = self.path != "-" and stat.S_ISREG(os.fstat(self._fd).st_mode)
        if self.resumable:
            self._lock()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            if isinstance(error, BlockingIOError):
                message = (
                    f"{self.path} is being written by another batchgen run; wait for it, or choose another -o"
                )
                raise OutputBusyError(message) from error
            raise OutputError(f"cannot lock {self.path}: {error.strerror}") from error

    def resume(
        self, expected: Mapping[str, str | None], *, fingerprint: str, requests_name: str, force: bool = False
    ) -> Finished:
        """Take over what an earlier run has written, and cut its torn last line.

        ``expected`` maps the ids of all lines that the present requests and options can give to their
        custom_ids. Any other line in the file raises OutputConflictError before the file is touched, unless
        ``force``: then it stays, and a request with its custom_id counts as done.
        """
        if not self.resumable:
            return Finished()
        lines, end, tail = self._scan()
        foreign = [(number, line) for number, line in enumerate(lines, 1) if line.id not in expected]
        if foreign and not force:
            number, line = foreign[0]
            why = _explain(line, set(expected.values()), fingerprint, requests_name)
            raise OutputConflictError(
                f"{self.path}:{number}: {why}. Choose another -o, or --restart to begin anew (drops "
                f"{len(lines)} lines), or --force to keep what is there and run what is missing"
            )
        self._cut(end, tail)
        done = {line.custom_id for _, line in foreign if not _is_duplicate_error(line)}
        return Finished(
            ids=frozenset(line.id for line in lines),
            custom_ids=frozenset(custom_id for custom_id in done if custom_id is not None),
            num_lines=len(lines),
            num_errors=sum(line.error is not None for line in lines),
        )

    def _scan(self) -> tuple[list[FinishedLine], int, int]:
        """The whole lines, the offset of their end, and the size of the torn line after it."""
        lines: list[FinishedLine] = []
        decode = msgspec.json.Decoder(FinishedLine).decode
        end = 0
        with open(os.dup(self._fd), "rb") as file:
            file.seek(0)
            for raw in file:
                if not raw.endswith(b"\n"):
                    if not raw.startswith(_LINE_START[: len(raw)]):
                        self._refuse(len(lines) + 1)
                    return lines, end, len(raw)
                try:
                    lines.append(decode(raw))
                except (msgspec.DecodeError, UnicodeDecodeError):
                    self._refuse(len(lines) + 1)
                end += len(raw)
        return lines, end, 0

    def _refuse(self, number: int) -> None:
        raise OutputConflictError(
            f"{self.path}:{number}: not a result line, so the file cannot be resumed. Choose another -o, or "
            "--restart to overwrite it"
        )

    def restart(self) -> None:
        """Drop everything that the file holds."""
        if self.resumable:
            self._cut(0, 1)

    def _cut(self, end: int, tail: int) -> None:
        self._end = end
        if tail:
            os.ftruncate(self._fd, end)
        os.lseek(self._fd, end, os.SEEK_SET)

    def append(self, line: bytes) -> None:
        """Write one whole line, or none of it: OutputError."""
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            self._end += len(line)
            self.num_written += 1
            if time.monotonic() - self._last_sync > SYNC_SECONDS:
                self.sync()
        except BaseException as error:
            if self.resumable:
                self._cut(self._end, 1)
            if isinstance(error, OSError):
                raise OutputError(f"cannot write {self.path}: {error.strerror}") from error
            raise

    def sync(self) -> None:
        """Have the lines so far survive a crash of the machine."""
        self._last_sync = time.monotonic()
        if self.resumable:
            os.fsync(self._fd)

    def close(self) -> None:
        try:
            self.sync()
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error.strerror}") from error
        finally:
            os.close(self._fd)

    def __enter__(self) -> ResultFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_duplicate_error(line: FinishedLine) -> bool:
    return line.error is not None and line.error.code == "duplicate_custom_id"


def _explain(
    line: FinishedLine, custom_ids: Collection[str | None], fingerprint: str, requests_name: str
) -> str:
    name = f"the line of custom_id {line.custom_id!r}"
    if line.custom_id is None or line.custom_id not in custom_ids:
        return f"{name} belongs to no line of {requests_name}"
    if line.error is None and fingerprint_of(line.id) != fingerprint:
        return f"{name} was made with other options (model, dtype, seed, row-exact or default max tokens)"
    return f"{name} was made from another request than the one in {requests_name}"
