"""Names that nothing in a file or tree has yet."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import PurePosixPath

from migration.code.source import Source
from migration.code.tree import Tree

_WORD = re.compile(r"[^\W\d]\w*")


def names_in(source: Source) -> frozenset[str]:
    """Every word of a file that could be an identifier, those in strings and comments too."""
    return frozenset(_WORD.findall(source.data.decode("utf-8-sig", "replace")))


def free_name(wanted: Iterable[str], taken: Collection[str]) -> str:
    """The first of the wanted names that is not taken; then the last one with a number."""
    last = ""
    for last in wanted:
        if last not in taken:
            return last
    number = 2
    while f"{last}{number}" in taken:
        number += 1
    return f"{last}{number}"


def free_module(tree: Tree, folder: str, stem: str) -> str:
    """Path of a module that is not in the folder yet, neither as a file nor as a package."""
    base = stem
    number = 2
    while True:
        path = str(PurePosixPath(folder, stem)) if folder else stem
        if tree.read(f"{path}.py") is None and not tree.is_dir(path):
            return f"{path}.py"
        stem = f"{base}_{number}"
        number += 1
