"""Every place of a tree of files that writes, deletes or computes an attribute of a given name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from migration.code.facts import dotted, self_name
from migration.code.syntax import parse_or_none
from migration.code.tree import Tree

_SETTERS = ("setattr", "delattr", "object", "__setattr__")


@dataclass(frozen=True)
class Write:
    """`on_self`: the receiver is the self of the method around it, whose class is `owner`."""

    path: str
    line: int
    owner: str | None
    method: str
    on_self: bool
    is_property: bool = False
    #: Last parts of the names of the owner's bases.
    bases: frozenset[str] = frozenset()


def writes_of(tree: Tree, name: str) -> Iterator[Write]:
    """Writes of `<anything>.<name>`, also by `setattr(x, "<name>", ...)` and the patching helpers of tests."""
    mention = re.compile(rb"\b%b\b" % re.escape(name).encode())
    for path in tree.python_files():
        data = tree.read(path) or b""
        if not mention.search(data):
            continue
        module = parse_or_none(data)
        if module is None:
            continue
        yield from _Walker(path, name).walk(module, None, "", None)


class _Walker:
    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self.name = name
        self._bases: frozenset[str] = frozenset()

    def walk(self, node: ast.AST, owner: str | None, method: str, self_: str | None) -> Iterator[Write]:
        for child in ast.iter_child_nodes(node):
            inside = (owner, method, self_)
            outer = self._bases
            if isinstance(child, ast.ClassDef):
                inside = (child.name, "", None)
                self._bases = frozenset(dotted(base).rpartition(".")[2] for base in child.bases)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                name = getattr(child, "name", "lambda")
                if isinstance(node, ast.ClassDef) and not isinstance(child, ast.Lambda):
                    inside = (owner, name, self_name(child))
                    if name == self.name and child.decorator_list:
                        yield Write(self.path, child.lineno, owner, name, True, True, self._bases)
                elif self_ is not None:
                    # It runs when it is called: no longer while the object is made.
                    inside = (owner, f"{method}.{name}", self_)
            receiver = self._receiver(child)
            if receiver is not None:
                on_self = isinstance(receiver, ast.Name) and receiver.id == self_
                yield Write(
                    self.path, getattr(child, "lineno", 0), owner, method, on_self, False, self._bases
                )
            yield from self.walk(child, *inside)
            self._bases = outer

    def _receiver(self, node: ast.AST) -> ast.expr | None:
        """The object whose attribute a node writes."""
        if isinstance(node, ast.Attribute) and node.attr == self.name and not isinstance(node.ctx, ast.Load):
            return node.value
        if (
            isinstance(node, ast.Call)
            and dotted(node.func).rpartition(".")[2] in _SETTERS
            and len(node.args) > 1
        ):
            constant = node.args[1]
            if isinstance(constant, ast.Constant) and constant.value == self.name:
                return node.args[0]
        return None
