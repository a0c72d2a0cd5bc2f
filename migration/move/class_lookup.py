"""Classes named `module:Class` in a recipe: their source, and that of their bases, where the repository has it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migration.code.module_file import module_file
from migration.code.structure import FunctionNode
from migration.code.tree import Tree
from migration.presence.class_files import ClassFiles, KnownClass
from migration.recipe_check import near


def find_class(tree: Tree, path: str, root: str) -> tuple[KnownClass, ...] | str:
    """The class and its bases, nearest first, without those of other packages; or why there is none."""
    module, _, name = path.partition(":")
    file = module_file(tree, module, root)
    if file is None:
        return f"{module} is not in the repository"
    files = ClassFiles(tree)
    parsed = files.module(file[0])
    if parsed is None:
        return f"{file[0]} does not parse"
    if name not in parsed.classes:
        return f"{file[0]} has no class {name}{near(name, parsed.classes)}"
    return tuple(dict.fromkeys(_with_bases(files, files.known(parsed, parsed.classes[name]), ())))


def _with_bases(files: ClassFiles, known: KnownClass, below: tuple[KnownClass, ...]) -> Iterator[KnownClass]:
    yield known
    for base in known.node.bases:
        above = files.resolve(known.module, base)
        if isinstance(above, KnownClass) and above not in (*below, known):
            yield from _with_bases(files, above, (*below, known))


def methods_of(classes: tuple[KnownClass, ...]) -> dict[str, FunctionNode]:
    """The methods that a class has from its own body and from its bases."""
    return {
        part.name: part
        for known in reversed(classes)
        for part in known.node.body
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
    }
