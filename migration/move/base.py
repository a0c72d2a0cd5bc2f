"""`[target] base`: a class written by hand that the generated handler inherits from."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migration.code.facts import dotted, self_name
from migration.code.import_graph import ImportGraph
from migration.code.tree import OverlayTree, Tree
from migration.errors import Refusal
from migration.move.class_lookup import find_class
from migration.move.names import ImportName
from migration.recipe import Recipe


def base_import(recipe: Recipe) -> ImportName:
    module, _, name = recipe.base.partition(":")
    return ImportName(module, name)


def base_refusals(recipe: Recipe, tree: Tree, handler: bytes) -> tuple[Refusal, ...]:
    """Why the class of the module `handler` cannot have the base."""
    if not recipe.base:
        return ()
    found = find_class(tree, recipe.base, recipe.import_root)
    if isinstance(found, str):
        return (Refusal("MG125", recipe.base, 0, found),)
    module = base_import(recipe).module
    after = OverlayTree(tree, {recipe.target_file: handler})
    chain = ImportGraph(after, recipe.target_module, recipe.import_root).chain(module)
    if chain is not None:
        return (Refusal("MG105", recipe.base, 0, " imports ".join(chain)),)
    own = next(
        node
        for node in ast.parse(handler).body
        if isinstance(node, ast.ClassDef) and node.name == recipe.handler_class
    )
    taken = {name for name, _ in _defined(own)}
    clashes = {
        name: Refusal("MG125", recipe.base, line, f"{known.module.path}:{line} defines {name} too")
        for known in reversed(found)
        for name, line in _defined(known.node)
        if name in taken
    }
    return tuple(clashes.values())


def _defined(node: ast.ClassDef) -> Iterator[tuple[str, int]]:
    """(name, line) of what a class has at run time: a bare annotation only tells the type checker."""
    if any("dataclass" in dotted(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list):
        yield "__init__", node.lineno
    left: list[ast.AST] = list(node.body)
    while left:
        part = left.pop(0)
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield part.name, part.lineno
            yield from _kept(part)
        elif isinstance(part, ast.If) and dotted(part.test).rpartition(".")[2] == "TYPE_CHECKING":
            left = [*part.orelse, *left]
        elif isinstance(part, ast.stmt | ast.ExceptHandler):
            bare = isinstance(part, ast.AnnAssign) and part.value is None
            for inner in ast.iter_child_nodes(part):
                if isinstance(inner, ast.stmt | ast.ExceptHandler):
                    left.append(inner)
                elif not bare:
                    names = (n for n in ast.walk(inner) if isinstance(n, ast.Name))
                    yield from ((n.id, n.lineno) for n in names if isinstance(n.ctx, ast.Store))


def _kept(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[tuple[str, int]]:
    """Attributes that a method sets on self."""
    owner = None if isinstance(function, ast.ClassDef) else self_name(function)
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == owner:
                yield node.attr, node.lineno


def base_faults(recipe: Recipe, module: ast.Module, handler: ast.ClassDef) -> list[str]:
    """What the handler class inherits otherwise than the recipe says."""
    wanted = [base_import(recipe).bound] if recipe.base else []
    if [ast.unparse(base) for base in handler.bases] != wanted or handler.keywords or handler.decorator_list:
        return [f"{handler.name} does not inherit from {recipe.base or 'nothing'}, and from nothing else"]
    lines = [ast.unparse(node) for node in module.body if isinstance(node, ast.ImportFrom)]
    listed = [line.partition(" import ") for line in lines]
    if recipe.base and not any(
        head == f"from {base_import(recipe).module}" and wanted[0] in names.split(", ")
        for head, _, names in listed
    ):
        return [f"{wanted[0]} is not {recipe.base}"]
    return []
