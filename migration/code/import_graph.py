"""Does importing one module of the tree run another? Only imports that run at import time count."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migration.code.facts import dotted
from migration.code.tree import Tree


def chain_to(tree: Tree, start: str, goal: str) -> tuple[str, ...] | None:
    """The shortest chain of imports from module `start` to module `goal`, None when there is none."""
    came_from: dict[str, str | None] = {start: None}
    queue = [start]
    for module in queue:
        for name in _imports(tree, module):
            if name in came_from:
                continue
            came_from[name] = module
            if name == goal:
                chain = [name]
                while (before := came_from[chain[-1]]) is not None:
                    chain.append(before)
                return tuple(reversed(chain))
            queue.append(name)
    return None


def _file(tree: Tree, module: str) -> tuple[str, bytes] | None:
    base = module.replace(".", "/")
    for path in (f"{base}/__init__.py", f"{base}.py"):
        if (data := tree.read(path)) is not None:
            return path, data
    return None


def _imports(tree: Tree, module: str) -> Iterator[str]:
    """Modules of the tree that importing `module` imports: its parent packages first."""
    yield from _parents(module)
    found = _file(tree, module)
    if found is None:
        return
    path, data = found
    package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
    try:
        body = ast.parse(data).body
    except (SyntaxError, ValueError):
        return
    for node in _at_import_time(body):
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            names = [origin, *(f"{origin}.{name}" for name in names)]
        for name in names:
            yield from _parents(name)
            if _file(tree, name) is not None:
                yield name


def _parents(module: str) -> Iterator[str]:
    parts = module.split(".")
    yield from (".".join(parts[:count]) for count in range(1, len(parts)))


def _at_import_time(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and dotted(node.test).rpartition(".")[2] == "TYPE_CHECKING":
            yield from _at_import_time(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for field in ("body", "orelse", "finalbody"):
                yield from _at_import_time(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from _at_import_time(handler.body)
