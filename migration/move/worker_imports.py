"""Where the class's file imports its handlers: one run in one order, whichever slice came first, and the
runtime of the gates behind it.

So the file depends on what stands in it, and not on the order in which its slices were gated and cleaned up:
each can be taken out again, byte for byte, at any time.
"""

from __future__ import annotations

import ast

from migration.code.module_file import module_file
from migration.code.source import Source
from migration.code.structure import top_imports
from migration.code.tree import Tree
from migration.recipe import Recipe

#: The module that gates come from.
RUNTIME = "shadow.experiment"


def gate_objects(source: Source) -> dict[str, ast.Assign]:
    """The gates that the module makes, `_KV_GATE = Gate("KV", Handler, {...})`, by name."""
    return {
        node.targets[0].id: node
        for node in source.tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "Gate"
    }


def runtime_imports(source: Source) -> list[ast.ImportFrom]:
    """Imports from the runtime at the top level, those under another name left out."""
    return [
        node
        for node in source.tree.body
        if isinstance(node, ast.ImportFrom)
        and (node.module, node.level) == (RUNTIME, 0)
        and all(alias.asname is None and alias.name != "*" for alias in node.names)
    ]


def handler_import_line(source: Source, tree: Tree, recipe: Recipe) -> int:
    """The line before which the import of what the slice calls belongs."""
    module, name = recipe.served
    runtimes = [node for node in runtime_imports(source) if _brings_gate(node)]
    last = source.head_lines
    for node in top_imports(source):
        if node in runtimes:
            break
        if (
            _is_handler_import(node, source, tree, recipe)
            and ast.unparse(node) > f"from {module} import {name}"
        ):
            break
        last = node.end_lineno or node.lineno
    return last + 1


def _brings_gate(node: ast.ImportFrom) -> bool:
    return any(alias.name == "Gate" for alias in node.names)


def _is_handler_import(node: ast.stmt, source: Source, tree: Tree, recipe: Recipe) -> bool:
    """A route may inherit `for_worker`: then it shows by its use in the class or in a gate."""
    if not isinstance(node, ast.ImportFrom) or node.module is None or len(node.names) != 1:
        return False
    name = node.names[0].asname or node.names[0].name
    if f"{name}.for_worker(".encode() in source.data:
        return True
    calls = (gate.value for gate in gate_objects(source).values() if isinstance(gate.value, ast.Call))
    if any(isinstance(part, ast.Name) and part.id == name for call in calls for part in call.args):
        return True
    found = module_file(tree, node.module, recipe.import_root)
    return found is not None and b"def for_worker(cls, worker" in found[1]
