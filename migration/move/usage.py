"""Where other files of the repository lean on the worker module: patches, overrides, borrowed imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from migration.code.facts import dotted
from migration.code.syntax import parse_or_none
from migration.code.tree import Tree
from migration.recipe import Recipe


@dataclass(frozen=True)
class Override:
    """A place that replaces a method: in a subclass, on the class, or on an instance."""

    method: str
    path: str
    line: int


def overrides(tree: Tree, recipe: Recipe, methods: Collection[str]) -> tuple[Override, ...]:
    """Subclasses that define, and code that assigns or patches, one of `methods`."""
    found: list[Override] = []
    wanted = re.compile(rb"\b(?:" + b"|".join(re.escape(name).encode() for name in sorted(methods)) + rb")\b")
    for path in tree.python_files():
        data = tree.read(path) or b""
        if path != recipe.target_file and wanted.search(data):
            found += [o for o in _overrides_in(path, data, recipe.source_class) if o.method in methods]
    return tuple(found)


@lru_cache(maxsize=1024)  # a port that is made in parts asks the same of the same files each time
def _overrides_in(path: str, data: bytes, worker: str) -> tuple[Override, ...]:
    """What a file may replace of the worker, by whatever name."""
    module = parse_or_none(data)
    if module is None:
        return ()
    nodes = list(ast.walk(module))
    found = [hit for node in nodes for hit in _overrides_at(node, path, worker)]
    others = _other_classes(module, nodes, worker) if any(owner for owner, _ in found) else frozenset()
    return tuple(override for owner, override in found if owner not in others)


def _other_classes(module: ast.Module, nodes: Collection[ast.AST], worker: str) -> frozenset[str]:
    """Names that always mean a class of this module which is neither the worker nor of its kind."""
    bound = {worker}
    for node in nodes:
        if isinstance(node, ast.Name) and type(node.ctx) is ast.Store:
            bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name)
    bases = {
        node.name: [dotted(base) for base in node.bases]
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name not in bound
    }
    known = {"object", "Protocol", "Exception"}
    while found := {name for name in bases.keys() - known if known.issuperset(bases[name])}:
        known |= found
    return frozenset(known & bases.keys())


def _overrides_at(node: ast.AST, path: str, worker: str) -> list[tuple[str, Override]]:
    """Each with what it is replaced on, "" for a subclass's own."""
    if isinstance(node, ast.ClassDef) and any(
        dotted(base).rpartition(".")[2] == worker for base in node.bases
    ):
        bodies = [s for s in node.body if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef)]
        return [("", Override(s.name, path, s.lineno)) for s in bodies]
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        owner = dotted(node.value)  # `self` is some other class; the worker's own are known
        return [] if owner == "self" else [(owner, Override(node.attr, path, node.lineno))]
    if isinstance(node, ast.Call) and len(node.args) >= 2:
        name = node.args[1]
        if dotted(node.func).rpartition(".")[2] in ("setattr", "object") and isinstance(name, ast.Constant):
            return [(dotted(node.args[0]), Override(str(name.value), path, node.lineno))]
    return []


@dataclass(frozen=True)
class Mentions:
    """The files of the tree that speak of the worker module, read once."""

    files: tuple[tuple[str, bytes], ...]

    @classmethod
    def of(cls, tree: Tree, recipe: Recipe) -> Mentions:
        parent, _, leaf = (part.encode() for part in recipe.source_module.rpartition("."))
        mention = _mention(parent.rpartition(b".")[2], leaf)
        found: list[tuple[str, bytes]] = []
        for path in tree.python_files():
            if path not in (recipe.source_file, recipe.target_file):
                data = tree.read(path) or b""
                if leaf in data and mention.search(data):
                    found.append((path, data))
        return cls(tuple(found))

    def borrowed(self, names: Collection[str]) -> dict[str, str]:
        """name -> file, for names that one of the files mentions.

        Text is enough here: a false hit only keeps an import that could have gone.
        """
        return self._search(names, rb"\b(%b)\b")

    def replaced(self, names: Collection[str]) -> dict[str, str]:
        """name -> file, for names that one of the files may rebind: `m.name = ...`, `setattr(m, "name", ...)`,
        `patch("pkg.worker.name")`. A false hit only makes the handler take the name from the worker."""
        return self._search(names, rb"\.(?:%b)\s*=(?!=)|[\"'](?:[\w.]+\.)?(?:%b)[\"']")

    def _search(self, names: Collection[str], pattern: bytes) -> dict[str, str]:
        found: dict[str, str] = {}
        if not names:
            return found
        words = b"|".join(re.escape(name).encode() for name in sorted(names))
        wanted = re.compile(pattern.replace(b"%b", words))
        word = re.compile(rb"\b(?:" + words + rb")\b")
        for path, data in self.files:
            for match in wanted.finditer(data):
                for name in word.findall(match[0]):
                    found.setdefault(name.decode(), path)
        return found


def _mention(package: bytes, leaf: bytes) -> re.Pattern[bytes]:
    """How a file speaks of module `leaf` of `package`: `package.leaf`, `.leaf import`, `package import leaf`."""
    leaf, package = re.escape(leaf), re.escape(package)
    if not package:
        return re.compile(rb"\b" + leaf + rb"\b")
    listed = rb"\s+import\s*(?:\([^)]*|[^\n]*)\b" + leaf + rb"\b"
    return re.compile(
        rb"\b%b\s*\.\s*%b\b|\.%b\s+import\b|\bfrom\s+(?:[\w.]*\b%b|\.+)%b"
        % (package, leaf, leaf, package, listed)
    )
