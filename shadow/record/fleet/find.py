"""The records of folders and files that a user names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shadow.record.format import begins_like_a_record

SUFFIX = ".record"


@dataclass(frozen=True)
class Found:
    """`records`: what each is called, by its absolute path, in the order of names. `others`: files of the folders
    that are none. `unread`: folders that cannot be looked into, with the reason."""

    records: dict[Path, str]
    others: tuple[str, ...]
    unread: dict[str, str]


def find_records(places: Sequence[Path]) -> Found:
    """Files as they are; of folders, searched to their depth, what ends in .record or begins with its signature.

    A file that is reached in two ways counts once.
    """
    unread: dict[str, str] = {}
    others: list[str] = []
    named: dict[str, Path] = {}

    def cannot(error: OSError) -> None:
        unread[str(error.filename)] = error.strerror or type(error).__name__

    for place in places:
        if not place.is_dir():
            named[str(place)] = place
            continue
        for path in _files(place, cannot):
            if _is_record(path):
                named[str(path)] = path
            else:
                others.append(str(path))
    records: dict[Path, str] = {}
    for name, path in sorted(named.items()):
        records.setdefault(path.resolve(), name)
    return Found(records, tuple(sorted(others)), unread)


def _files(folder: Path, cannot: Callable[[OSError], None]) -> Iterator[Path]:
    for root, _, names in os.walk(folder, onerror=cannot):
        yield from (Path(root, name) for name in names)


def _is_record(path: Path) -> bool:
    if not path.is_file():  # a pipe would wait for its writer
        return False
    if path.suffix == SUFFIX:
        return True
    try:
        with path.open("rb") as file:
            return begins_like_a_record(file.read(32))
    except OSError:
        return True  # to be named by whoever replays it
