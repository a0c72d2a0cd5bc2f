"""The Protocol classes of a module as data: generated ones and those that a recipe gives literally alike."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from migration.code.facts import dotted
from migration.code.source import Source
from migration.code.structure import FunctionNode
from migration.errors import MigrationError
from migration.move.names import ImportName, ModuleNames, type_names


@dataclass(frozen=True)
class ProtocolMember:
    """A method (`node`), or an attribute of the type `annotation` that may be `writable`."""

    name: str
    node: FunctionNode | None
    annotation: ast.expr | None
    writable: bool


@dataclass(frozen=True)
class ProtocolClass:
    name: str
    line: int
    members: tuple[ProtocolMember, ...]


class ProtocolModule:
    """A module that holds Protocols, and where the names in their annotations come from."""

    def __init__(self, source: Source, module: str) -> None:
        self.module = module
        self.names = ModuleNames(source, module, is_package=source.path.endswith("__init__.py"))
        self._classes = {node.name: node for node in source.tree.body if isinstance(node, ast.ClassDef)}

    @property
    def protocols(self) -> tuple[ProtocolClass, ...]:
        """All Protocol classes in the order of the file, with what they inherit from others of the file."""
        return tuple(
            ProtocolClass(name, node.lineno, tuple(self._members(node).values()))
            for name, node in self._classes.items()
            if _is_protocol(node)
        )

    def _members(self, node: ast.ClassDef) -> dict[str, ProtocolMember]:
        found: dict[str, ProtocolMember] = {}
        for base in node.bases:
            parent = self._classes.get(dotted(base))
            if parent is not None and parent is not node:
                found.update(self._members(parent))
        for statement in node.body:
            for member in _member(statement, found):
                found[member.name] = member
        return found

    def imports(self, annotations: Iterable[ast.expr | None]) -> set[ImportName]:
        """Imports for the names in annotations; MG527 for a name that cannot be imported."""
        return importable(self.names, annotations)


def importable(names: ModuleNames, annotations: Iterable[ast.expr | None]) -> set[ImportName]:
    """Imports that give another module the names in annotations of this one; MG527 where one cannot be had."""
    found: set[ImportName] = set()
    for annotation in annotations:
        for name in type_names(annotation) if annotation is not None else ():
            imports = names.type_import(name)
            if imports is None:
                message = f"{names.module}: {name} in `{ast.unparse(annotation or ast.Name(name))}`"
                raise MigrationError("MG527", message)
            found.update(imports)
    return found


def annotations_of(node: FunctionNode) -> Iterator[ast.expr | None]:
    """Annotations of all parameters and of the result."""
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    for arg in (*named, arguments.vararg, arguments.kwarg):
        if arg is not None:
            yield arg.annotation
    yield node.returns


def _is_protocol(node: ast.ClassDef) -> bool:
    bases = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    return any(dotted(base).rpartition(".")[2] == "Protocol" for base in bases)


def _member(statement: ast.stmt, before: dict[str, ProtocolMember]) -> Iterator[ProtocolMember]:
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        yield ProtocolMember(statement.target.id, None, statement.annotation, True)
    elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        decorators = [dotted(decorator) for decorator in statement.decorator_list]
        if f"{statement.name}.setter" in decorators:
            annotation = before[statement.name].annotation
            yield ProtocolMember(statement.name, None, annotation, True)
        elif any(name.endswith("property") for name in decorators):
            yield ProtocolMember(statement.name, None, statement.returns, False)
        else:
            yield ProtocolMember(statement.name, statement, None, False)
