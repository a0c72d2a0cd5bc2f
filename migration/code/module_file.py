"""Where the source of a module lies in a tree whose imports start at one of its folders."""

from __future__ import annotations

import posixpath

from migration.code.tree import Tree


def module_file(tree: Tree, module: str, root: str) -> tuple[str, bytes] | None:
    """(path, bytes) of a module below the folder `root`, None where the tree has none; a package wins, as in Python."""
    base = posixpath.join(root, module.replace(".", "/"))
    for path in (f"{base}/__init__.py", f"{base}.py"):
        if (data := tree.read(path)) is not None:
            return path, data
    return None
