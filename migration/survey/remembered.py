"""A tree that is read once: many cuts are tried on the same files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from migration.code.tree import Tree


@dataclass(frozen=True)
class RememberedTree:
    """`base` as it was when each file was first asked for."""

    base: Tree
    _files: dict[str, bytes | None] = field(default_factory=dict)
    _folders: dict[str, bool] = field(default_factory=dict)
    _python: list[str] = field(default_factory=list)

    def read(self, path: str) -> bytes | None:
        if path not in self._files:
            self._files[path] = self.base.read(path)
        return self._files[path]

    def is_dir(self, path: str) -> bool:
        if path not in self._folders:
            self._folders[path] = self.base.is_dir(path)
        return self._folders[path]

    def python_files(self) -> Iterator[str]:
        if not self._python:
            self._python.extend(self.base.python_files())
        return iter(self._python)
