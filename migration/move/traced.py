"""A traced type as the worker's module would write it: its own names where it has some, imports for the rest."""

from __future__ import annotations

import ast
import builtins
import json

from migration.code.tree import Tree
from migration.errors import MigrationError
from migration.move.names import ImportName, ModuleNames
from migration.recipe import Recipe
from migration.trace.types import Traced, TracedTypes, parse_types

#: Every handler module binds these itself.
_TAKEN = frozenset({"Any", "Protocol", "TYPE_CHECKING"})


def traced_types(recipe: Recipe, tree: Tree) -> TracedTypes | None:
    """What the recipe's `types` say of its class, None where it names no such file.

    MG303, MG521, MG524 where the file, its schema or the class is not there.
    """
    if not recipe.types:
        return None
    data = tree.read(recipe.types)
    if data is None:
        raise MigrationError("MG303", f"{recipe.types} does not exist (slice {recipe.name})")
    try:
        document = json.loads(data)
    except ValueError as error:
        raise MigrationError("MG521", f"{recipe.types}: {error}") from error
    classes = document.get("classes") if isinstance(document, dict) else None
    alone = isinstance(classes, dict) and len(classes) == 1
    class_path = None if alone else f"{recipe.source_module}:{recipe.source_class}"
    return parse_types(document, class_path, recipe.types)


def spelled(traced: Traced, names: ModuleNames) -> tuple[str, frozenset[ImportName]] | None:
    """(annotation, imports that it needs) for a traced type; None for "Any".

    `torch.Tensor` stays so where the worker has `import torch`, and becomes `Tensor` where it has
    `from torch import Tensor` or nothing; a name that means something else there is not shadowed.
    """
    if traced.text == "Any":
        return None
    short: dict[str, str] = {}
    imports: set[ImportName] = set()
    for module, name in traced.classes:
        text, needed = _one(module, name, names, frozenset(short.values()))
        short[f"{module}.{name}"] = text
        imports.add(needed)
    return ast.unparse(_Renamed(short).visit(ast.parse(traced.text, mode="eval")).body), frozenset(imports)


def with_trace(
    text: str, evidence: str, traced: Traced | None, names: ModuleNames
) -> tuple[str, str, frozenset[ImportName]]:
    """(type, evidence, further imports) of a place that the class types as `text`, given what was traced.

    The class goes first: a trace fills in only where its type has an Any that nobody wrote down. It may
    not make a type narrower than the assignments are: `| None` stays, and so does Any where the class
    itself assigns several types.
    """
    kept = (text, evidence, frozenset[ImportName]())
    said = evidence in ("annotation", "definition", "property") and text != "Any"
    if traced is None or said or "Any" not in text or evidence.startswith("assigned "):
        return kept
    found = spelled(traced, names)
    if found is None:
        return text, f"{evidence}; {traced.evidence}", frozenset()
    optional = text.endswith("| None") and not found[0].endswith("| None")
    return found[0] + " | None" * optional, traced.evidence, found[1]


def _one(module: str, name: str, names: ModuleNames, taken: frozenset[str]) -> tuple[str, ImportName]:
    outer, dot, inner = name.partition(".")
    imports = [binding.imported for found in names.bindings.values() for binding in found if binding.imported]
    for imported in imports:
        # `from kv import Pool` for a class of kv.gpu: packages pass on what their modules define.
        origin = imported.module == module or module.startswith(f"{imported.module}.")
        if origin and imported.name == outer:
            return f"{imported.bound}{dot}{inner}", imported
    for imported in imports:
        if imported.module == module and imported.name is None:
            return f"{imported.alias or module}.{name}", imported
    free = outer not in names.bindings and outer not in taken | _TAKEN and not hasattr(builtins, outer)
    if free or module == names.module:
        return name, ImportName(module, outer)
    return f"{module}.{name}", ImportName(module)


class _Renamed(ast.NodeTransformer):
    def __init__(self, short: dict[str, str]) -> None:
        self._short = short

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        text = self._short.get(ast.unparse(node))
        return node if text is None else ast.parse(text, mode="eval").body
