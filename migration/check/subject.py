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
from migration.code.facts import dotted
from migration.code.module_file import module_file
from migration.code.module_names import ModuleNames, module_names
from migration.code.source import Source, read_source
from migration.code.structure import ClassOutline, FunctionNode, Method, classes, outline
from migration.code.tree import Tree
from migration.move.cut import select
from migration.move.moving import moved_name
from migration.move.others import LEGACY, switches
from migration.phases.gate_text import gated
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
class Part:
    """A class with the file that it stands in."""

    source: Source
    shape: ClassOutline


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
    #: Proofs of other slices.
    others: tuple[ProofFile, ...] = ()
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
    def to_come(self) -> tuple[str, ...]:
        """Methods of the slice that a later part of its port brings; none once the port is whole."""
        if self.phase != "port":
            return ()
        there = {method.name for method in self.handler_shape.methods}
        wanted = (moved_name(method, self.shape.name) for method in select(self.shape, self.recipe))
        return tuple(name for name in wanted if name not in there)

    @cached_property
    def written(self) -> tuple[Part, ...]:
        """Classes of the repository that the handler inherits from: written by hand, and held to the same rules."""
        found: list[Part] = []
        queue = [Part(self.handler, self.handler_shape)]
        for part in queue:
            origins = module_names(part.source.tree, part.source.data).origins
            for base in part.shape.node.bases:
                module, _, name = origins.get(dotted(base), "").rpartition(".")
                file = module_file(self.tree, module, self.recipe.import_root) if module else None
                if file is None or any(known.shape.name == name for known in queue):
                    continue
                source = Source(*file)  # its own tree: nodes are known by their identity
                if any(node.name == name for node in classes(source)):
                    queue.append(Part(source, outline(source, name)))
                    found.append(queue[-1])
        return tuple(found)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The handler, and what of it is written by hand."""
        return (Part(self.handler, self.handler_shape), *self.written)

    @cached_property
    def all_methods(self) -> tuple[tuple[Part, Method], ...]:
        """The handler's methods and those that it inherits, without its wiring."""
        inherited = [
            (part, method)
            for part in self.written
            for method in part.shape.methods
            if id(method.node) not in _for_checkers(part.shape)
        ]
        return (*((self.parts[0], method) for method in self.methods), *inherited)

    @cached_property
    def _sources(self) -> dict[int, Source]:
        """By the identity of a node: the source that it is from, where that is not the handler's."""
        return {id(node): part.source for part in self.written for node in ast.walk(part.source.tree)}

    def source_of(self, node: ast.AST) -> Source:
        return self._sources.get(id(node), self.handler)

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
        return HandlerObjects(self.recipe, tuple(method for _, method in self.all_methods))

    @cached_property
    def worker_objects(self) -> Objects:
        """The same for the class that the slice was taken from."""
        return WorkerObjects(self.shape.methods)

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
        """Legacy bodies, less those behind the gates of other slices."""
        gates, own = switches(self.shape), self.recipe.gate_name
        found = {m.name.removeprefix(LEGACY): m for m in self.shape.methods if m.name.startswith(LEGACY)}
        return {name: method for name, method in found.items() if gates.get(name, own) == own}

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
        """A place in the handler, or in what it inherits."""
        return Place(self.source_of(node).path, getattr(node, "lineno", 0))

    def at_worker(self, node: ast.AST) -> Place:
        return Place(self.worker.path, getattr(node, "lineno", 0))

    def method_at(self, line: int) -> str:
        """The method of the handler that a line stands in, "" for none."""
        around = (m for m in self.handler_shape.methods if m.first_line <= line <= m.last_line)
        return next((m.name for m in around), "")

    def functions(self) -> Iterator[tuple[str, FunctionNode]]:
        """Methods of the handler and functions of its module, each with what findings call it."""
        for part, method in self.all_methods:
            yield f"{part.shape.name}.{method.name}", method.node
        for part in self.parts:
            for node in part.source.tree.body:
                if isinstance(node, FunctionNode):
                    yield node.name, node

    def source(self, path: str) -> Source | None:
        data = self.tree.read(path)
        return None if data is None else read_source(path, data)


def _for_checkers(shape: ClassOutline) -> frozenset[int]:
    """What a class body declares under TYPE_CHECKING: at run time there is another, or none."""
    guarded = (n for n in shape.node.body if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test))
    return frozenset(id(part) for node in guarded for part in node.body)


def is_test(path: str) -> bool:
    parts = path.split("/")
    name = posixpath.basename(path)
    return "tests" in parts[:-1] or name.startswith(("test_", "conftest")) or name.endswith("_test.py")
