"""Classes of a repository found by name: what a base class in one file is in another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from migration.code.facts import dotted
from migration.code.module_names import ModuleNames, module_level, module_names
from migration.code.syntax import parse_or_none
from migration.code.tree import Tree
from migration.presence.attribute_uses import ModuleUses, module_uses
from migration.presence.class_body import ClassBody

_HOPS = 8


@dataclass(frozen=True)
class OneFile:
    """A tree of a single file: for when nothing else is known."""

    path: str
    data: bytes

    def read(self, path: str) -> bytes | None:
        return self.data if path == self.path else None

    def is_dir(self, path: str) -> bool:
        return False

    def python_files(self) -> Iterator[str]:
        yield self.path


class Module:
    """One parsed file of the tree."""

    def __init__(self, path: str, data: bytes, tree: ast.Module) -> None:
        self.path = path
        self.data = data
        self.tree = tree

    @cached_property
    def names(self) -> ModuleNames:
        return module_names(self.tree, self.data)

    @cached_property
    def uses(self) -> ModuleUses:
        return module_uses(self.tree)

    def may_store(self, name: str) -> bool:
        """Whether any code of the file assigns an attribute of that name, on whatever object."""
        # Where every mention is a call, nothing is assigned: that spares the look at the tree.
        word = re.escape(name.encode())
        if re.search(rb"\.\s*%b\b(?!\s*\()|[\"']%b[\"']" % (word, word), self.data) is None:
            return False
        return name in self.uses.stored

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """Classes that a name of the module stands for without doubt."""
        found = {node.name: node for node in module_level(self.tree.body) if isinstance(node, ast.ClassDef)}
        return {name: node for name, node in found.items() if name not in self.names.repeated}


@dataclass(frozen=True, eq=False)
class KnownClass:
    """A class whose source is in the tree."""

    module: Module
    node: ast.ClassDef

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def where(self) -> str:
        return f"{self.module.path}:{self.node.lineno}"

    @cached_property
    def body(self) -> ClassBody:
        return ClassBody(self.node, self.module.names)

    def callee(self, node: ast.Call) -> str:
        """What a call in code of this class calls, dotted; "" where a local name may hide it."""
        root = dotted(node.func).partition(".")[0]
        uses = self.module.uses
        if not root or not uses.is_certain(root) or root in uses.definitions:
            return ""
        return self.body.origin(node)


class ClassFiles:
    """Reads and parses the files of a tree once, and follows imports to classes."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._texts: dict[str, bytes] | None = None
        self._modules: dict[str, Module | None] = {}
        self._classes: dict[int, KnownClass] = {}

    def module(self, path: str) -> Module | None:
        """The parsed file, None where there is none or it does not parse."""
        if path not in self._modules:
            data = self.tree.read(path)
            parsed = parse_or_none(data) if data is not None else None
            self._modules[path] = Module(path, data, parsed) if data is not None and parsed else None
        return self._modules[path]

    @property
    def texts(self) -> dict[str, bytes]:
        """Every file of the tree, read once."""
        if self._texts is None:
            read = ((path, self.tree.read(path)) for path in self.tree.python_files())
            self._texts = {path: data for path, data in read if data is not None}
        return self._texts

    def add(self, module: Module) -> None:
        """Use a file that is parsed already, so that its nodes stay the same."""
        self._modules[module.path] = module

    def known(self, module: Module, node: ast.ClassDef) -> KnownClass:
        """The one object that stands for a class, so that identity means sameness."""
        return self._classes.setdefault(id(node), KnownClass(module, node))

    def resolve(self, module: Module, base: ast.expr) -> KnownClass | str:
        """The class that a base expression means, or its dotted name when its source is not in the tree."""
        path = dotted(base.value if isinstance(base, ast.Subscript) else base)
        if not path:
            return ast.unparse(base)
        return self._follow(module, path, _HOPS) or self._origin(module, path)

    def _origin(self, module: Module, path: str) -> str:
        root, _, rest = path.partition(".")
        if root in module.names.repeated or root in module.names.own:
            return f"{module.path}:{path}"
        start = module.names.origins.get(root, root)
        return f"{start}.{rest}" if rest else start

    def _follow(self, module: Module, path: str, hops: int) -> KnownClass | None:
        if path in module.classes:
            return self.known(module, module.classes[path])
        root = path.partition(".")[0]
        if hops == 0 or root not in module.names.origins or root in module.names.repeated:
            return None
        target, _, name = self._origin(module, path).rpartition(".")
        for file in self._files(module.path, target):
            found = self.module(file)
            if found is not None:
                return self._follow(found, name, hops - 1)
        return None

    def _files(self, importer: str, target: str) -> Iterator[str]:
        """Where a module may be: relative to the importer's package, or below any folder above it."""
        folders = importer.split("/")[:-1]
        level = len(target) - len(target.lstrip("."))
        parts = [part for part in target.lstrip(".").split(".") if part]
        if level:
            starts = [folders[: len(folders) - level + 1]]
        else:
            starts = [folders[:count] for count in range(len(folders), -1, -1)]
        for start in starts:
            base = "/".join([*start, *parts])
            if base:
                yield f"{base}.py"
                yield f"{base}/__init__.py"
