"""Would `migrate split` bring a method that is over the budget within it? Tried in memory, nothing written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from migration.code.tree import Tree
from migration.errors import MigrationError, Refusal
from migration.seams.graph import ClassGraph
from migration.seams.proposal import Candidate
from migration.split.plan import SplitClean, SplitOptions, SplitPlan, plan_split

#: The least that `migrate split --budget` takes.
_LEAST = 10


@dataclass(frozen=True)
class Splitting:
    """`pieces` are the method and its helpers, 1 where there is nothing to split, docstring and comments
    apart, 0 where it is refused."""

    method: str
    lines: int
    budget: int
    command: str
    pieces: int
    refusals: tuple[Refusal, ...] = ()

    @property
    def verdict(self) -> str:
        if self.pieces == 1:
            return f"no more than {self.budget} lines without docstring and comments: raise --budget"
        if self.pieces:
            return f"splits into {self.pieces} pieces"
        # The first reason says what is missing; those after it are about single statements.
        return f"refused: {self.refusals[0].code} {self.refusals[0].message}"


def splittings(
    graph: ClassGraph, tree: Tree, found: Iterable[Candidate], budget: int
) -> dict[str, Splitting]:
    """One for each method of the candidates that is longer than the budget."""
    names = dict.fromkeys(name for candidate in found for name in candidate.cluster.names)
    return {name: _splitting(graph, tree, name, budget) for name in names if graph.nodes[name].lines > budget}


def _splitting(graph: ClassGraph, tree: Tree, name: str, budget: int) -> Splitting:
    options = SplitOptions(budget=max(budget, _LEAST))
    path, owner = graph.source.path, graph.shape.name
    command = f"migrate split {path} {name} --class {owner} --budget {options.budget}"
    made = partial(Splitting, name, graph.nodes[name].lines, options.budget, command)
    try:
        outcome = plan_split(graph.source, name, owner, options, tree)
    except MigrationError as error:
        return made(0, (Refusal(error.code, name, 0, str(error)),))
    if isinstance(outcome, SplitPlan):
        return made(1 + len(outcome.helpers))
    if isinstance(outcome, SplitClean):
        return made(1)
    return made(0, outcome.refusals)
