"""Which methods of a class have a proof: cuts of many methods at once, in memory, divided where refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from migration.code.tree import Tree
from migration.errors import Refusal
from migration.move.cut import CutPlan, CutRefused, plan_cut
from migration.move.proof import MethodProof
from migration.recipe import Recipe

#: Refusals that come from other methods of the same cut: without them the method may move.
_OF_THE_COMPANY = frozenset(("MG019", "MG107"))


class Attempts:
    """`proved` has the proof of each definition by its names in the class and in the handler, `refused` the
    reasons by its name in the class. Every method that is tried ends up in one of the two."""

    def __init__(self, tree: Tree, recipe: Recipe, progress: Callable[[str], None] = lambda _: None) -> None:
        self._tree = tree
        self._recipe = recipe
        self._progress = progress
        self.proved: dict[tuple[str, str], MethodProof] = {}
        self.refused: dict[str, tuple[Refusal, ...]] = {}

    def settle(self, names: Sequence[str]) -> None:
        """Try the named methods together, and apart what does not go together."""
        if not names:
            return
        refusals = self._cut(names)
        if not refusals:
            return
        named = {name: found for name in names if (found := tuple(r for r in refusals if r.where == name))}
        alone = len(names) == 1
        final = {n for n, found in named.items() if alone or {r.code for r in found} - _OF_THE_COMPANY}
        self.refused |= {name: named[name] for name in final}
        if alone:
            self.refused.setdefault(names[0], refusals)
        elif final:
            self.settle([name for name in names if name not in final])
        elif named:
            self.settle([name for name in names if name not in named])
            self._halves(list(named))
        elif self._is_general(names, refusals):
            self.refused |= dict.fromkeys(names, refusals)
        else:
            self._halves(names)

    def _halves(self, names: Sequence[str]) -> None:
        middle = (len(names) + 1) // 2
        self.settle(names[:middle])
        self.settle(names[middle:])

    def _is_general(self, names: Sequence[str], refusals: tuple[Refusal, ...]) -> bool:
        """True where the reasons are the same for the first and for the last method alone."""
        return all(self._cut([name]) == refusals for name in (names[0], names[-1]))

    def _cut(self, names: Sequence[str]) -> tuple[Refusal, ...]:
        """Why these methods do not move together; () when they do, and then their proofs are kept."""
        self._progress(names[0] if len(names) == 1 else f"{len(names)} methods at once")
        outcome = plan_cut(dataclasses.replace(self._recipe, methods=tuple(names)), self._tree)
        if isinstance(outcome, CutRefused):
            return outcome.refusals
        assert isinstance(outcome, CutPlan), "the handler class of the attempt is a new one"
        self.proved |= {(detail.name, detail.moved_name): detail for detail in outcome.proof.details}
        return ()
