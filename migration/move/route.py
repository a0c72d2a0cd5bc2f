"""`[gate] route`: a class written by hand that stands before the handler, with the methods that are called on it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from migration.code.facts import dotted
from migration.code.import_graph import ImportGraph
from migration.code.structure import FunctionNode
from migration.code.tree import Tree
from migration.errors import Refusal
from migration.move.class_lookup import find_class, methods_of
from migration.move.forwarding import parameters
from migration.recipe import Recipe
from migration.recipe_check import near

_BINDING = ("staticmethod", "classmethod", "property", "cached_property")


def route_refusals(recipe: Recipe, tree: Tree, names: Sequence[str]) -> tuple[Refusal, ...]:
    """Why the methods `names` of the handler cannot be called on the route; `tree` has the handler."""
    if not recipe.route:
        return ()
    module, served = recipe.served
    found = find_class(tree, recipe.route, recipe.import_root)
    if isinstance(found, str):
        return (Refusal("MG124", recipe.route, 0, found),)
    chain = ImportGraph(tree, recipe.source_module, recipe.import_root).chain(module)
    if chain is not None:
        return (Refusal("MG105", recipe.route, 0, " imports ".join(chain)),)
    handler = find_class(tree, f"{recipe.target_module}:{recipe.handler_class}", recipe.import_root)
    assert not isinstance(handler, str), handler
    offered, wanted = methods_of(found), methods_of(handler)
    here = found[0].node.lineno
    refusals = []
    for name, fault in _faults(offered, {name: wanted[name] for name in names}):
        line = offered[name].lineno if name in offered and offered[name] in found[0].node.body else here
        refusals.append(Refusal("MG124", f"{served}.{name}", line, fault))
    return tuple(refusals)


def _faults(offered: dict[str, FunctionNode], wanted: dict[str, FunctionNode]) -> Iterator[tuple[str, str]]:
    """(method, what is wrong with it)"""
    if any(_binding(node) != "staticmethod" for node in wanted.values()):
        yield from (("for_worker", fault) for fault in _factory_faults(offered.get("for_worker")))
    for name, node in wanted.items():
        own = offered.get(name)
        if own is None:
            yield name, f"it is not there{near(name, offered)}"
        elif _signature(own) != _signature(node):
            yield name, f"it is `{_shown(own)}`, the handler has `{_shown(node)}`"


def _factory_faults(node: FunctionNode | None) -> Iterator[str]:
    if node is None:
        yield "it is not there"
        return
    binding = _binding(node)
    taken = parameters(node, int(binding == "classmethod"))
    first = [one for one in taken if one.kind in ("posonlyargs", "args", "vararg")][:1]
    others = [one for one in taken if one not in first and one.kind not in ("vararg", "kwarg")]
    if (
        isinstance(node, ast.AsyncFunctionDef)
        or binding not in ("classmethod", "staticmethod")
        or not first
        or any(one.default is None for one in others)
    ):
        yield "it is no class method that takes the worker alone"


def _binding(node: FunctionNode) -> str:
    """The decorator that says how the function is reached on a class, "" for a plain method."""
    names = [dotted(decorator).rpartition(".")[2] for decorator in node.decorator_list]
    return next((name for name in names if name in _BINDING), "")


def _signature(node: FunctionNode) -> tuple[object, ...]:
    """What a call sees; the name of the first parameter and annotations do not count."""
    binding = _binding(node)
    passed = [
        (one.name, one.kind, ast.dump(one.default) if one.default is not None else "")
        for one in parameters(node, int(binding != "staticmethod"))
    ]
    return type(node), binding, *passed


def _shown(node: FunctionNode) -> str:
    binding = _binding(node)
    decorator = f"@{binding} " if binding else ""
    words = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return f"{decorator}{words} {node.name}({ast.unparse(_bare(node.args))})"


def _bare(arguments: ast.arguments) -> ast.arguments:
    """The parameters without annotations."""

    def plain(args: list[ast.arg]) -> list[ast.arg]:
        return [ast.arg(one.arg) for one in args]

    return ast.arguments(
        plain(arguments.posonlyargs),
        plain(arguments.args),
        arguments.vararg and ast.arg(arguments.vararg.arg),
        plain(arguments.kwonlyargs),
        arguments.kw_defaults,
        arguments.kwarg and ast.arg(arguments.kwarg.arg),
        arguments.defaults,
    )
