"""Deeply nested code: a dispatcher of a thousand `elif`s is a tree a thousand levels deep."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from migration.errors import MigrationError

#: Frames. The default of 1,000 is spent at 200 levels; this is enough for whatever Python itself compiles,
#: and short of what the usual 8 MiB of stack hold.
_LIMIT = 12_000


@contextmanager
def deep_trees(path: str = "", data: bytes = b"") -> Iterator[None]:
    """Let visitors follow trees as deep as the parser makes them.

    Raises MG317 where even that is too deep, with the line when the file is given.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _LIMIT))
    try:
        yield
    except RecursionError as error:
        message = "a file nests too deeply to follow"
        if path:
            line, depth = deepest(ast.parse(data))
            message = f"{path}:{line}: the statement nests {depth} levels deep; split it"
        raise MigrationError("MG317", message) from error
    finally:
        sys.setrecursionlimit(before)


def deepest(tree: ast.Module) -> tuple[int, int]:
    """(line of the statement, levels below the module) of the deepest node."""
    line, depth = 1, 0
    stack: list[tuple[ast.AST, int, int]] = [(tree, 0, 1)]
    while stack:
        node, level, statement = stack.pop()
        if isinstance(node, ast.stmt) and not isinstance(node, ast.If):
            statement = node.lineno
        if level > depth:
            line, depth = statement, level
        stack += [(child, level + 1, statement) for child in ast.iter_child_nodes(node)]
    return line, depth
