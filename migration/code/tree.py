"""The files of a repository as the planners see them: read-only, root-relative, replaceable in tests."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from migration.code.encoding import as_utf8

_SKIPPED = {"__pycache__", "node_modules", "out", "build", "dist", "site-packages"}


class Tree(Protocol):
    def read(self, path: str) -> bytes | None:
        """Bytes of a file, None where there is none. Paths are relative to the root, with `/`."""

    def is_dir(self, path: str) -> bool: ...

    def python_files(self) -> Iterator[str]:
        """Every .py file of the project, without environments, caches and run outputs."""


@dataclass(frozen=True)
class DiskTree:
    """Files on disk, read afresh each time; Python files of other encodings come as UTF-8 (see `as_utf8`)."""

    root: Path

    def read(self, path: str) -> bytes | None:
        file = self.root / path
        if not file.is_file():
            return None
        data = file.read_bytes()
        return as_utf8(data) if path.endswith(".py") else data

    def is_dir(self, path: str) -> bool:
        return (self.root / path).is_dir()

    def python_files(self) -> Iterator[str]:
        for folder, folders, files in os.walk(self.root):
            folders[:] = sorted(
                name
                for name in folders
                if not name.startswith(".")
                and name not in _SKIPPED
                and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
            )
            base = Path(folder).relative_to(self.root)
            yield from ((base / name).as_posix() for name in sorted(files) if name.endswith(".py"))


@dataclass(frozen=True)
class OverlayTree:
    """A tree with some files replaced, or deleted (None): how a result is looked at before it is written."""

    base: Tree
    files: Mapping[str, bytes | None]

    def read(self, path: str) -> bytes | None:
        return self.files[path] if path in self.files else self.base.read(path)

    def is_dir(self, path: str) -> bool:
        there = (name for name, data in self.files.items() if data is not None)
        return self.base.is_dir(path) or any(name.startswith(f"{path}/") for name in there)

    def python_files(self) -> Iterator[str]:
        own = (name for name, data in self.files.items() if data is not None and name.endswith(".py"))
        yield from sorted(own)
        yield from (path for path in self.base.python_files() if path not in self.files)
