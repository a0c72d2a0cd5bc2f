"""A cluster as a slice: its name, its handles, and the recipe that would move it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from migration.code.tree import Tree
from migration.move.delegates import is_delegate
from migration.proofs.where import proof_path
from migration.recipe import Recipe
from migration.seams.concerns import handle_specs, members_of
from migration.seams.graph import ClassGraph
from migration.seams.interface import Cluster
from migration.seams.words import camel
from migration.survey.free_names import free_module, free_name, names_in

Origin = Literal["seam", "section", "methods", "part"]


@dataclass(frozen=True)
class Candidate:
    """A slice that might be cut. `members` are those of its Protocols as far as the class shows them."""

    name: str
    origin: Origin
    cluster: Cluster
    recipe: Recipe
    members: frozenset[str]
    budget: int

    @property
    def over_budget(self) -> bool:
        return self.cluster.lines > self.budget


class Proposer:
    """Makes candidates whose names, files and classes are all different, and new in the tree."""

    def __init__(self, tree: Tree, graph: ClassGraph, budget: int) -> None:
        self._tree = tree
        self._graph = graph
        self._budget = budget
        self._names: set[str] = set()
        self._words = set(names_in(graph.source))
        path = PurePosixPath(graph.source.path)
        self._folder = str(path.parent / f"{path.stem}_parts")

    def propose(self, wanted: str, found: Cluster, origin: Origin, section: str = "") -> Candidate:
        """A candidate called `wanted`, or like it; `section` is its banner where that names its methods."""
        graph = self._graph
        name = free_name((wanted,), self._taken(wanted))
        self._names.add(name)
        handler = free_name((f"{camel(name)}Handler", f"{camel(name)}SliceHandler"), self._words)
        self._words.add(handler)
        recipe = Recipe(
            name=name,
            source_file=graph.source.path,
            source_class=graph.shape.name,
            section=section,
            target_file=free_module(self._tree, self._folder, name),
            handler_class=handler,
            handles=handle_specs(graph, found, name, handler, self._words),
            methods=() if section else found.names,
            stays=self._stubs(section),
            siblings="handler",
            import_root=graph.import_root,
        )
        return Candidate(name, origin, found, recipe, members_of(graph, found, recipe.handles), self._budget)

    def _stubs(self, section: str) -> tuple[str, ...]:
        """What has moved already from under a banner."""
        methods = [m for part in self._graph.shape.sections if part.title == section for m in part.methods]
        return tuple(dict.fromkeys(m.name for m in methods if is_delegate(m))) if section else ()

    def _taken(self, wanted: str) -> Collection[str]:
        """Names of other candidates, and of slices that were cut in this tree already."""
        number, tried = 2, wanted
        taken = set(self._names)
        while tried in taken or self._tree.read(proof_path(tried)) is not None:
            taken.add(tried)
            tried, number = f"{wanted}{number}", number + 1
        return taken


def letters(count: int) -> Sequence[str]:
    """Names for parts: a, b, c, ...; numbers where the letters do not suffice."""
    return [chr(ord("a") + i) if count <= 26 else str(i + 1) for i in range(count)]
