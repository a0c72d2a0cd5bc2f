"""A disk that stops, refuses or is interrupted at a chosen call, and trees to try it on."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from migration.ledger import disk
from migration.ledger.change import FileChange
from migration.ledger.records import UNDO, records

#: Before and after of one write: files change, come (in a new folder) and go (with their folder).
OLD = {"a.py": b"old a\n", "pkg/b.py": b"old b\n", "gone/d.py": b"old d\n"}
NEW = {"a.py": b"new a\n" * 1000, "pkg/b.py": b"new b\n" * 1000, "pkg/deep/er/c.py": b"new c\n"}


def make_tree(root: Path, files: dict[str, bytes] = OLD) -> None:
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def changes_between(old: dict[str, bytes], new: dict[str, bytes]) -> list[FileChange]:
    return [FileChange(path, old.get(path), new.get(path)) for path in (old | new)]


CHANGES = changes_between(OLD, NEW)


def tree(root: Path) -> dict[str, bytes | None]:
    """Every file with its bytes and every folder with None, but for what undo keeps."""
    found: dict[str, bytes | None] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if name != ".migrate" and not f"{name}/".startswith(f"{UNDO}/"):
            found[name] = path.read_bytes() if path.is_file() else None
    return found


def with_folders(files: dict[str, bytes]) -> dict[str, bytes | None]:
    folders = {parent.as_posix() for path in files for parent in Path(path).parents[:-1]}
    return dict(sorted({**dict.fromkeys(folders), **files}.items()))


def labels(root: Path) -> list[str]:
    return [record.label for record in records(root)]


class Killed(BaseException):
    """Not an Exception: no handler may tidy up, as none would run after SIGKILL."""


def _half(descriptor: int) -> None:
    """What was not synced when the power went may be there in part."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)


@contextlib.contextmanager
def _counted(act: Callable[[int, str, tuple], None]) -> Iterator[None]:
    """`act(n, name, arguments)` before the n-th call that touches the disk. Nothing is synced: that is slow."""
    count = [0]

    def wrapped(name: str, call: Callable):
        def calling(*args, **kwargs):
            count[0] += 1
            act(count[0] - 1, name, args)
            return call(*args, **kwargs)

        return calling

    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "mkdir", "unlink", "rmdir"):
            patch.setattr(os, name, wrapped(name, getattr(os, name)))
        patch.setattr(os, "fsync", wrapped("fsync", lambda descriptor: None))
        patch.setattr(disk, "open", wrapped("open", open), raising=False)
        yield


def unsynced() -> contextlib.AbstractContextManager[None]:
    """The disk works and is quick, as nothing is synced."""
    return _counted(lambda *_: None)


@contextlib.contextmanager
def killed_at(instant: int) -> Iterator[None]:
    """The process dies before disk call number `instant`; nothing that it tries afterwards has an effect."""

    def act(number: int, name: str, arguments: tuple) -> None:
        if number >= instant:
            if number == instant and name == "fsync":
                _half(*arguments)
            raise Killed

    with _counted(act):
        yield


@contextlib.contextmanager
def refused_at(instant: int, times: int = 1) -> Iterator[None]:
    """The system refuses `times` disk calls, from number `instant` on."""

    def act(number: int, name: str, arguments: tuple) -> None:
        if instant <= number < instant + times:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with _counted(act):
        yield


@contextlib.contextmanager
def signalled_at(instant: int, number: int = signal.SIGINT) -> Iterator[None]:
    """A signal comes before disk call number `instant`."""

    def act(call: int, name: str, arguments: tuple) -> None:
        if call == instant:
            signal.raise_signal(number)

    with _counted(act):
        yield
