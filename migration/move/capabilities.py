"""The Protocols that stand for a method that only some subclasses have: their text, clashes, and their proof."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from migration.errors import Refusal
from migration.move.moving import Moving
from migration.move.names import ImportName
from migration.move.proven import Place, Proven
from migration.presence.capability import protocol_of
from migration.recipe import Recipe

CHECKABLE = ImportName("typing", "runtime_checkable")


def capabilities(proven: Mapping[Place, Proven]) -> dict[str, str]:
    """Name of the Protocol -> the method, for all that are asked for."""
    return {one.capability: one.attribute for _, one in sorted(proven.items()) if one.capability}


def capability_texts(recipe: Recipe, found: Mapping[str, str]) -> list[str]:
    """Each Protocol as it stands in the handler module."""
    texts = []
    for name in found.values():
        head, _, member = protocol_of(name).rpartition("\n")
        doc = f"A {recipe.source_class} of a subclass that defines `{name}`."
        texts.append(f'{head}\n    """{doc}"""\n\n{member}\n')
    return texts


def hidden(moving: Iterable[Moving], found: Mapping[str, str]) -> Iterator[Refusal]:
    """MG019 where a method binds a name that the isinstance test needs."""
    names = {"isinstance", *found} if found else set()
    for one in moving:
        for node in ast.walk(one.node):
            bound = {getattr(node, field, None) for field in ("arg", "name", "asname", "rest")}
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                bound = {node.id}
            if not isinstance(node, ast.keyword) and (clash := names & bound):
                message = f"{min(clash)} is a name of its own there"
                yield Refusal("MG019", one.label, getattr(node, "lineno", one.node.lineno), message)


def capability_faults(module: ast.Module, proven: Mapping[Place, Proven]) -> list[str]:
    """Protocols of a handler module that would answer otherwise than that the method is there."""
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    faults = []
    for title, name in capabilities(proven).items():
        node = classes.get(title)
        body = node.body[ast.get_docstring(node) is not None :] if node is not None else []
        said = [ast.unparse(statement) for statement in body]
        wanted = f"def {name}(self, *args: Any, **kwargs: Any) -> Any:\n    ..."
        if (
            node is None
            or [ast.unparse(part) for part in node.decorator_list] != ["runtime_checkable"]
            or [ast.unparse(part) for part in node.bases] != ["Protocol"]
            or node.keywords
            or said != [wanted]
        ):
            faults.append(f"{title} is not the Protocol of {name}")
    return faults
