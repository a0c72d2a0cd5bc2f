"""Where the base and the route of a handler speak of a method of the worker, and not of the handler's own.

Both are full of calls of moved methods, on handlers. A receiver that is no handler beyond doubt may be the
worker: that only keeps a delegate.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from migration.code.facts import dotted
from migration.code.module_file import module_file
from migration.code.syntax import parse_or_none
from migration.code.tree import Tree
from migration.recipe import Recipe

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
#: What a method of a handler gives is a handler where it is called so.
_BINDERS = frozenset(("on", "for_worker"))


def written_around(recipe: Recipe, tree: Tree) -> frozenset[str]:
    """The files of base and route."""
    modules = [path.partition(":")[0] for path in (recipe.base, recipe.route) if path]
    files = (module_file(tree, module, recipe.import_root) for module in modules)
    return frozenset(file[0] for file in files if file is not None)


def worker_mentions(data: bytes, recipe: Recipe, words: Collection[str]) -> Iterator[tuple[str, int]]:
    """(word, line) of what may be a method of the worker in such a file."""
    module = parse_or_none(data)
    word = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(words)))})\b")
    if module is None or _derives(module, recipe.source_class):
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            yield from ((match[0], number) for match in word.finditer(line))
        return
    handlers = _Handlers.of(module, recipe)
    texts = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    for node, known in _scoped(module, handlers, frozenset()):
        if isinstance(node, ast.Attribute) and node.attr in words:
            if not handlers.is_one(node.value, known):
                yield node.attr, node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield from ((match[0], node.lineno) for match in word.finditer(node.value))


def _derives(module: ast.Module, worker: str) -> bool:
    """True where self may be the worker."""
    classes = (node for node in ast.walk(module) if isinstance(node, ast.ClassDef))
    return any(dotted(base).rpartition(".")[2] == worker for node in classes for base in node.bases)


@dataclass(frozen=True)
class _Handlers:
    """What is a handler in one file: calls of `makers`, and attributes of self that hold nothing else."""

    makers: frozenset[str]
    attributes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, module: ast.Module, recipe: Recipe) -> _Handlers:
        names = {recipe.handler_class, *(path.rpartition(":")[2] for path in (recipe.base, recipe.route))}
        functions = [node for node in ast.walk(module) if isinstance(node, _FUNCTIONS)]
        named = {node.name for node in functions if node.returns and _said(node.returns) in {"Self", *names}}
        plain = cls(frozenset(names | named))
        stores = [n.attr for n in ast.walk(module) if isinstance(n, ast.Attribute) and not _loads(n)]
        kept = {
            target.attr
            for node, known in _scoped(module, plain, frozenset())
            if isinstance(node, ast.Assign) and plain.is_one(node.value, known)
            for target in node.targets
            if isinstance(target, ast.Attribute) and dotted(target.value) == "self"
        }
        return cls(plain.makers, frozenset(name for name in kept if stores.count(name) == 1))

    def is_one(self, node: ast.expr, known: Collection[str]) -> bool:
        """True for self, and for what can only be a handler."""
        if isinstance(node, ast.Name):
            return node.id in ("self", "cls") or node.id in known or node.id in self.makers
        if isinstance(node, ast.Attribute):
            return dotted(node.value) == "self" and node.attr in self.attributes
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                return node.func.attr in self.makers | _BINDERS
            return dotted(node.func) in self.makers or ast.unparse(node.func) == "type(self)"
        return False


def _said(annotation: ast.expr) -> str:
    text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    return str(text).rpartition(".")[2]


def _loads(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load)


def _scoped(
    node: ast.AST, handlers: _Handlers, known: frozenset[str]
) -> Iterator[tuple[ast.AST, frozenset[str]]]:
    """Every node, with the local names that are handlers where it stands."""
    for child in ast.iter_child_nodes(node):
        inner = known
        if isinstance(child, _FUNCTIONS | ast.Lambda):
            inner = _local(child, handlers, known)
        yield child, inner
        yield from _scoped(child, handlers, inner)


def _local(
    function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
    handlers: _Handlers,
    known: frozenset[str],
) -> frozenset[str]:
    """Names bound in the function that only ever are a handler."""
    arguments = [node for node in ast.walk(function.args) if isinstance(node, ast.arg)]
    bound = {one.arg for one in arguments}
    sure = {one.arg for one in arguments if one.annotation and _said(one.annotation) in handlers.makers}
    stores = [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)]
    found = (known - bound - set(stores)) | (sure - set(stores))
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and handlers.is_one(node.value, found):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            found |= {name for name in names if stores.count(name) == 1 and name not in bound}
    return found
