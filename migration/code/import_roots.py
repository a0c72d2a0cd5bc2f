"""Where the imports of a file start: the folder of the repository that is on `sys.path` for it."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import PurePosixPath

from migration.code.source import Source
from migration.code.tree import Tree

_IMPORT = re.compile(rb"^[ \t]*(?:from|import)[ \t]+(\w+)", re.MULTILINE)


def import_root(tree: Tree, source: Source) -> str:
    """Folder (`""` for the repository itself) under which the path of the file is its module name.

    Packages with `__init__.py` end where their names end. A folder above them counts as a package
    without one when the file imports through it; a script that is in no package imports from its own
    folder.
    """
    folders = PurePosixPath(source.path).parent.parts
    top = len(folders)
    while top and tree.read("/".join((*folders[:top], "__init__.py"))) is not None:
        top -= 1
    named = _imported_tops(source.data) - sys.stdlib_module_names
    for depth in range(top):
        if folders[depth] in named:
            return "/".join(folders[:depth])
    in_package = top < len(folders)
    return "/".join(folders[:top]) if in_package or _is_script(source) else ""


def _imported_tops(data: bytes) -> frozenset[str]:
    """First parts of the absolute imports anywhere in the file (one in a string does no harm)."""
    return frozenset(found.decode() for found in _IMPORT.findall(data))


def _is_script(source: Source) -> bool:
    return any(
        isinstance(node, ast.Constant) and node.value == "__main__"
        for statement in source.tree.body
        if isinstance(statement, ast.If)
        for node in ast.walk(statement.test)
    )
