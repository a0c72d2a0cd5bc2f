"""A candidate tried out: cut in memory as it is, then without what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from migration.code.tree import Tree
from migration.errors import Refusal
from migration.ledger.change import FileChange
from migration.ledger.patch import patch
from migration.move.cut import CutPlan, CutRefused, plan_cut, select
from migration.move.planned import planned_bodies
from migration.recipe import Recipe
from migration.seams.graph import ClassGraph
from migration.seams.proposal import Candidate
from migration.survey.attempts import Attempts

#: A cut is refused in stages: what one stage hides, the next attempt shows.
_ATTEMPTS = 6


@dataclass(frozen=True)
class FileDiff:
    """Lines that the cut adds to a file and deletes from it, as its patch counts them."""

    path: str
    added: int
    deleted: int


@dataclass(frozen=True)
class Trial:
    """What came of a candidate. `recipe` is the one that was tried last, with the methods that it leaves
    behind and the bodies that it was planned on; `plan` is its verified cut, None where there is none.

    `refused` are the reasons of each method that stays behind, `blocking` those that name no method.
    """

    candidate: Candidate
    recipe: Recipe
    plan: CutPlan | None
    refused: Mapping[str, tuple[Refusal, ...]]
    blocking: tuple[Refusal, ...]
    diff: tuple[FileDiff, ...]

    @property
    def verdict(self) -> str:
        """ "yes", "part" where some methods stay behind, "no" where there is no cut."""
        return "no" if self.plan is None else "part" if self.refused else "yes"

    @property
    def members(self) -> frozenset[str]:
        """Members of the Protocols of the cut: `name` of the worker, `object.name` of an object."""
        handles = self.plan.handles if self.plan else ()
        return frozenset(
            ".".join((*(chain.removeprefix("self.") for chain in handle.spec.expressions), member.name))
            for handle in handles
            for member in handle.members
        )

    @property
    def written(self) -> tuple[str, ...]:
        """Members that the moved methods write; without a cut, what the candidate writes."""
        if self.plan is None:
            return tuple(sorted(self.candidate.cluster.written))
        return tuple(sorted(m.name for handle in self.plan.handles for m in handle.members if m.written))

    @property
    def lazy(self) -> tuple[str, ...]:
        """Members that do not exist until a method makes them."""
        handles = self.plan.handles if self.plan else ()
        return tuple(sorted(m.name for handle in handles for m in handle.members if m.lazy))

    @property
    def whole(self) -> tuple[str, ...]:
        """Places, as `method:line`, that pass the object itself on."""
        handles = self.plan.handles if self.plan else ()
        return tuple(place for handle in handles for place in handle.whole)


def try_out(candidate: Candidate, graph: ClassGraph, tree: Tree) -> Trial:
    """Cut the candidate in memory.

    Methods that another file replaces are called through the worker; methods that are refused stay
    behind, and the rest is tried again. Where a reason names no method, those that bring it about are
    found by trying parts.
    """
    recipe = candidate.recipe
    names = candidate.cluster.names
    refused: dict[str, tuple[Refusal, ...]] = {}
    blocking: tuple[Refusal, ...] = ()
    plan: CutPlan | None = None
    searched = False
    for _ in range(_ATTEMPTS):
        outcome = plan_cut(recipe, tree)
        if not isinstance(outcome, CutRefused):
            assert isinstance(outcome, CutPlan), "the handler class of a candidate is a new one"
            plan, blocking = outcome, ()
            break
        blocking = outcome.refusals
        replaced = tuple(n for n in names if any((r.code, r.where) == ("MG107", n) for r in blocking))
        own = {n: found for n in names if (found := _own(blocking, n))}
        if not (replaced or own) and not searched:
            searched, own = True, _culprits(recipe, names, refused, tree)
        if not (replaced or own):
            break
        refused |= own
        late_bound = tuple(n for n in (*recipe.late_bound, *replaced) if n not in refused)
        stays = tuple(dict.fromkeys((*candidate.recipe.stays, *sorted(refused))))
        recipe = dataclasses.replace(recipe, late_bound=late_bound, stays=stays)
        if len(refused) == len(names):
            blocking = ()
            break
    recipe = dataclasses.replace(recipe, planned=planned_bodies(select(graph.shape, recipe)))
    if plan is not None:
        plan = dataclasses.replace(plan, recipe=recipe)
    diff = tuple(file_diff(change) for change in plan.changes) if plan else ()
    return Trial(candidate, recipe, plan, refused, blocking, diff)


def _culprits(
    recipe: Recipe, names: Sequence[str], refused: Collection[str], tree: Tree
) -> dict[str, tuple[Refusal, ...]]:
    """The methods that are refused when they are tried in parts; none where every method is."""
    left = [name for name in names if name not in refused]
    attempts = Attempts(tree, dataclasses.replace(recipe, section="", stays=()))
    attempts.settle(left)
    return {} if len(attempts.refused) == len(left) else attempts.refused


def _own(refusals: tuple[Refusal, ...], name: str) -> tuple[Refusal, ...]:
    return tuple(refusal for refusal in refusals if refusal.where == name and refusal.code != "MG107")


def file_diff(change: FileChange) -> FileDiff:
    """Counts of the patch of one change."""
    lines = patch([change]).split(b"\n")
    body = lines[next((i for i, line in enumerate(lines) if line.startswith(b"@@")), len(lines)) :]
    added = sum(line.startswith(b"+") for line in body)
    return FileDiff(change.path, added, sum(line.startswith(b"-") for line in body))
