"""The plan of a class: which slices, each tried out, and in which order."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from migration.code.tree import Tree
from migration.errors import MigrationError
from migration.move.cut import find_section
from migration.move.delegates import is_delegate
from migration.recipe import Recipe, host_handle, module_name
from migration.seams.divide import divide
from migration.seams.graph import ClassGraph
from migration.seams.interface import cluster
from migration.seams.mentions import mentions
from migration.seams.proposal import Candidate, Proposer, letters
from migration.seams.search import find_seams
from migration.seams.splitting import Splitting, splittings
from migration.seams.trial import Trial, try_out
from migration.seams.words import common_name, title_name

DEFAULT_BUDGET, DEFAULT_TOP = 500, 5


@dataclass(frozen=True)
class Wanted:
    """What to plan: a banner section, methods by name, or neither: then the seams are looked for.

    `budget`: most lines that a slice may move. `top`: how many seams to propose.
    """

    section: str = ""
    methods: tuple[str, ...] = ()
    budget: int = DEFAULT_BUDGET
    top: int = DEFAULT_TOP


@dataclass(frozen=True)
class ClassPlan:
    """`trials` in the order of their rank, which begins at `first`. `named_in` are the files that name a
    moved method outside the class. `order` are indices of trials, those first that the others call.
    `splits` has the methods that are longer than the budget, by name."""

    graph: ClassGraph
    wanted: Wanted
    trials: tuple[Trial, ...]
    named_in: Mapping[str, tuple[str, ...]]
    order: tuple[int, ...]
    first: int = 1
    splits: Mapping[str, Splitting] = field(default_factory=dict)

    def stubs_needed(self, trial: Trial) -> tuple[str, ...]:
        """Methods of a slice that somebody outside the slice may call."""
        inside = set(trial.candidate.cluster.names)
        return tuple(
            name
            for name in trial.candidate.cluster.names
            if name in self.named_in or set(self.graph.callers[name]) - inside
        )

    def calls(self, one: int, other: int) -> int:
        """How many calls lead from one slice into another."""
        there = set(self.trials[other].candidate.cluster.names)
        return sum(callee in there for _, callee in self.trials[one].candidate.cluster.calls_out)


def candidates(tree: Tree, graph: ClassGraph, wanted: Wanted) -> tuple[Candidate, ...]:
    """What might be cut, best first; nothing is tried yet.

    A section or list of methods is the first candidate; where it is over the budget, its parts follow.
    Raises MG101 and MG535 for a section or method that is not there, MG531 for a file that is no module.
    """
    if not all(part.isidentifier() for part in module_name(graph.source.path, graph.import_root).split(".")):
        raise MigrationError("MG531", f"{graph.source.path} cannot be imported by that name")
    proposer = Proposer(tree, graph, wanted.budget)
    if not (wanted.section or wanted.methods):
        return tuple(
            proposer.propose(common_name(graph, found.names), found, "seam")
            for found in find_seams(graph, wanted.budget, wanted.top)
        )
    names, title = _chosen(graph, wanted)
    if not names:
        return ()
    found = cluster(graph, names)
    name = title_name(title) if title else common_name(graph, found.names)
    whole = proposer.propose(name, found, "section" if title else "methods", title)
    if not whole.over_budget or len(names) == 1:
        return (whole,)
    parts = divide(graph, names, wanted.budget)
    named = zip(letters(len(parts)), parts, strict=True)
    return (whole, *(proposer.propose(f"{whole.name}_{x}", cluster(graph, p), "part") for x, p in named))


def _chosen(graph: ClassGraph, wanted: Wanted) -> tuple[tuple[str, ...], str]:
    """The names asked for that have not moved yet, in the order of the file, and the banner over them."""
    there = {name for name, node in graph.nodes.items() if not all(map(is_delegate, node.methods))}
    if wanted.section:
        recipe = Recipe(
            "plan", graph.source.path, graph.shape.name, wanted.section, "x.py", "X", (host_handle("X"),)
        )
        section = find_section(graph.shape, recipe)
        names = tuple(dict.fromkeys(m.name for m in section.methods if m.name in there))
        return names, section.title or ""
    unknown = [name for name in wanted.methods if name not in graph.nodes]
    if unknown:
        near = {name: difflib.get_close_matches(name, graph.nodes, 1) for name in unknown}
        shown = ", ".join(f"{n} (did you mean {near[n][0]}?)" if near[n] else n for n in unknown)
        raise MigrationError("MG535", f"{graph.shape.name} in {graph.source.path} has no {shown}")
    return tuple(name for name in graph.nodes if name in wanted.methods and name in there), ""


def try_all(
    tree: Tree,
    graph: ClassGraph,
    wanted: Wanted,
    found: Sequence[Candidate],
    progress: Callable[[int, str], None] = lambda *_: None,
    first: int = 1,
) -> ClassPlan:
    """The plan with each candidate cut in memory. `progress` is told how many are done, and what is next."""
    trials = []
    for index, candidate in enumerate(found):
        progress(index, candidate.name)
        trials.append(try_out(candidate, graph, tree))
    progress(len(found), "who calls the moved methods")
    names = {name for candidate in found for name in candidate.cluster.names}
    splits = splittings(graph, tree, found, wanted.budget)
    plan = ClassPlan(graph, wanted, tuple(trials), mentions(tree, graph, names), (), first, splits)
    return dataclasses.replace(plan, order=_order(plan))


def _order(plan: ClassPlan) -> tuple[int, ...]:
    """Those first that call least of what is still to come; the rank decides between equals. A section
    comes after its parts."""
    left = [index for index, trial in enumerate(plan.trials) if trial.candidate.origin in ("seam", "part")]
    order: list[int] = []
    while left:
        best = min(left, key=lambda one: (sum(plan.calls(one, o) for o in left if o != one), one))
        order.append(best)
        left.remove(best)
    return (*order, *(index for index in range(len(plan.trials)) if index not in order))
