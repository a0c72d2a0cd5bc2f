"""Who else names a method: code of the file outside the class, and the other files of the tree."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from migration.code.tree import Tree
from migration.seams.graph import ClassGraph

_ATTRIBUTE = re.compile(rb"\.\s*([A-Za-z_]\w*)")


def mentions(tree: Tree, graph: ClassGraph, names: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Files that have `.name` outside the class, for each name that has any.

    What the dot stands behind is not asked: a method of another class may have the same name, so this is
    how many places have to be looked at before a stub can go.
    """
    wanted = {name.encode() for name in names}
    found: dict[str, list[str]] = {}
    own = graph.source
    first, last = graph.shape.node.lineno, graph.shape.sections[-1].last_line
    around = b"".join((*own.lines[: first - 1], *own.lines[last:]))
    files = ((path, around if path == own.path else tree.read(path) or b"") for path in tree.python_files())
    for path, data in files:
        for name in sorted(wanted.intersection(_ATTRIBUTE.findall(data))):
            found.setdefault(name.decode(), []).append(path)
    return {name: tuple(paths) for name, paths in sorted(found.items())}
