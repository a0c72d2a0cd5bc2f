"""Does importing one module of the tree run another? Only imports that run at import time count."""

from __future__ import annotations

import re
from collections.abc import Iterator

from migration.code.module_file import module_file
from migration.code.tree import Tree

# Lines that open a block or import something; a parenthesised or continued import is taken whole.
_LINE = re.compile(
    rb"^(?P<indent>[ \t]*)(?:"
    rb"(?P<block>if|elif|else|try|except|finally|with|for|while|match|case|class|def|async)\b(?P<rest>[^\n]*)"
    rb"|from[ \t]+(?P<origin>[.\w \t]+?)[ \t]+import[ \t]*(?:\((?P<many>[^)]*)\)|(?P<names>(?:[^\n\\]|\\\r?\n)*))"
    rb"|import[ \t]+(?P<modules>(?:[^\n\\]|\\\r?\n)*))",
    re.MULTILINE,
)
_NAME = re.compile(r"[\w.]+")
_COMMENT = re.compile(rb"#[^\n]*")


class ImportGraph:
    """Import-time imports between the modules of a tree, read as they are asked for. They start at `root`.

    Files are scanned line by line, not parsed: an import inside a string may count as one, which at
    worst makes a caller more careful than it need be.
    """

    def __init__(self, tree: Tree, goal: str, root: str = "") -> None:
        self.tree = tree
        self.goal = goal
        self.root = root
        # Packages that contain the goal run before either module does.
        self._ignored = set(_parents(goal))
        self._safe: set[str] = set()

    def chain(self, start: str) -> tuple[str, ...] | None:
        """The shortest chain of imports from module `start` to the goal, None when there is none."""
        came_from: dict[str, str | None] = {start: None}
        queue = [start]
        for module in queue:
            if module in self._ignored or module in self._safe:
                continue
            for name in self._imports(module):
                if name in came_from:
                    continue
                came_from[name] = module
                if name == self.goal:
                    chain = [name]
                    while (before := came_from[chain[-1]]) is not None:
                        chain.append(before)
                    return tuple(reversed(chain))
                queue.append(name)
        self._safe.update(queue)
        return None

    def _imports(self, module: str) -> Iterator[str]:
        """Modules of the tree that importing `module` imports: its parent packages first."""
        yield from _parents(module)
        found = module_file(self.tree, module, self.root)
        if found is None:
            return
        path, data = found
        package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
        for name in dict.fromkeys(imported_names(data, package)):
            yield from _parents(name)
            yield name


def imported_names(data: bytes, package: str) -> Iterator[str]:
    """Dotted names that a module of `package` imports when it runs; `from a import b` gives a and a.b."""
    blocks: list[tuple[int, bool]] = []
    for line in _LINE.finditer(data):
        indent = len(line["indent"].expandtabs())
        while blocks and blocks[-1][0] >= indent:
            blocks.pop()
        if (block := line["block"]) is not None:
            later = block == b"def" or (block == b"async" and line["rest"].split()[:1] == [b"def"])
            blocks.append((indent, later or (block == b"if" and b"TYPE_CHECKING" in line["rest"])))
        elif not any(skipped for _, skipped in blocks):
            yield from _names(line, package)


def _names(line: re.Match[bytes], package: str) -> Iterator[str]:
    if line["modules"] is not None:
        for part in _text(line["modules"]).split(","):
            yield from _NAME.findall(part)[:1]
        return
    origin = _text(line["origin"]).replace(" ", "")
    dots = len(origin) - len(origin.lstrip("."))
    if dots:
        parts = package.split(".")
        base = parts[: len(parts) - dots + 1]
        origin = ".".join([*base, *([origin[dots:]] if origin[dots:] else [])])
    yield origin
    named = line["many"] if line["many"] is not None else line["names"]
    for part in _text(named).split(","):
        yield from (f"{origin}.{name}" for name in _NAME.findall(part)[:1])


def _text(raw: bytes) -> str:
    return _COMMENT.sub(b"", raw).decode("utf-8", "replace").replace("\\\n", " ")


def _parents(module: str) -> Iterator[str]:
    parts = module.split(".")
    yield from (".".join(parts[:count]) for count in range(1, len(parts)))
