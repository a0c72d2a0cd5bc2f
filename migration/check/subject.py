"""What the rules look at: one slice in one tree, read once."""

from __future__ import annotations

import ast
import datetime
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from migration.check.model import Place
from migration.check.objects import HandlerObjects, Objects, WorkerObjects
from migration.check.phase import Phase
from migration.code.module_names import ModuleNames, module_names
from migration.code.source import Source, read_source
from migration.code.structure import ClassOutline, FunctionNode, Method
from migration.code.tree import Tree
from migration.phases.gate_text import LEGACY, gated
from migration.phases.state import ungated
from migration.proofs.record import ProofFile
from migration.recipe import Recipe
from migration.recipe_checklist import Checklist


@dataclass(frozen=True)
class Changed:
    """Lines added and deleted in the files of the slice since a revision."""

    base: str
    added: int
    deleted: int
    files: tuple[str, ...]


@dataclass(frozen=True)
class Subject:
    """The tree in the phase that it is checked for. `changed` is None where there is no git to ask."""

    recipe: Recipe
    checklist: Checklist
    phase: Phase
    tree: Tree
    worker: Source
    shape: ClassOutline
    handler: Source
    handler_shape: ClassOutline
    today: datetime.date
    proof: ProofFile | None = None
    changed: Changed | None = None

    @cached_property
    def wiring(self) -> frozenset[str]:
        """Members of the handler that only hand over its handles."""
        request = self.recipe.request
        bound = () if request is None else ("on", f"_{request.name}")
        return frozenset(
            (
                "__init__",
                "for_worker",
                *bound,
                *(f"_{handle.name}" for handle in self.recipe.handles if handle.expressions),
            )
        )

    @cached_property
    def methods(self) -> tuple[Method, ...]:
        """The handler's methods, without its wiring."""
        return tuple(m for m in self.handler_shape.methods if m.name not in self.wiring)

    @cached_property
    def constructor(self) -> FunctionNode | None:
        return next((m.node for m in self.handler_shape.methods if m.name == "__init__"), None)

    @cached_property
    def injected(self) -> dict[str, str]:
        """Attribute of the handler -> the parameter of `__init__` that is stored in it."""
        if self.constructor is None:
            return {}
        arguments = self.constructor.args
        names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        return {
            target.attr: node.value.id
            for node in ast.walk(self.constructor)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in names
            for target in node.targets
            if isinstance(target, ast.Attribute)
        }

    @cached_property
    def objects(self) -> Objects:
        """What expressions in the handler stand for."""
        return HandlerObjects(self.recipe, self.handler_shape, self.wiring)

    @cached_property
    def worker_objects(self) -> Objects:
        """The same for the class that the slice was taken from."""
        return WorkerObjects(self.shape)

    @cached_property
    def names(self) -> ModuleNames:
        return module_names(self.handler.tree, self.handler.data)

    @cached_property
    def worker_names(self) -> ModuleNames:
        return module_names(self.worker.tree, self.worker.data)

    @cached_property
    def pairs(self) -> dict[str, tuple[Method, Method]]:
        """(gate, legacy body) by the name of the method in the handler."""
        return gated(self.shape, self.recipe)

    @cached_property
    def legacy(self) -> dict[str, Method]:
        return {m.name.removeprefix(LEGACY): m for m in self.shape.methods if m.name.startswith(LEGACY)}

    @cached_property
    def before_gate(self) -> bytes:
        """The class's file as it was before its gates."""
        return ungated(self.recipe, self.worker)

    @cached_property
    def production(self) -> Mapping[str, bytes]:
        """Every Python file of the project that is no test, by path."""
        found = {path: self.tree.read(path) for path in self.tree.python_files() if not is_test(path)}
        return {path: data for path, data in found.items() if data is not None}

    def at(self, node: ast.AST) -> Place:
        """A place in the handler."""
        return Place(self.handler.path, getattr(node, "lineno", 0))

    def at_worker(self, node: ast.AST) -> Place:
        return Place(self.worker.path, getattr(node, "lineno", 0))

    def method_at(self, line: int) -> str:
        """The method of the handler that a line stands in, "" for none."""
        around = (m for m in self.handler_shape.methods if m.first_line <= line <= m.last_line)
        return next((m.name for m in around), "")

    def functions(self) -> Iterator[tuple[str, FunctionNode]]:
        """Methods of the handler and functions of its module, each with what findings call it."""
        for method in self.methods:
            yield f"{self.recipe.handler_class}.{method.name}", method.node
        for node in self.handler.tree.body:
            if isinstance(node, FunctionNode):
                yield node.name, node

    def source(self, path: str) -> Source | None:
        data = self.tree.read(path)
        return None if data is None else read_source(path, data)


def is_test(path: str) -> bool:
    parts = path.split("/")
    name = posixpath.basename(path)
    return "tests" in parts[:-1] or name.startswith(("test_", "conftest")) or name.endswith("_test.py")
