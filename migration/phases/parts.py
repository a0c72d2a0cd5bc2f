"""Parts of a port that is over its budget: how far the next one goes, and its letter."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass

from migration.code.structure import Method
from migration.code.tree import Tree
from migration.ledger.change import FileChange
from migration.move.cut import CutOutcome, CutPlan
from migration.phases.state import cut_anew
from migration.recipe import Recipe


def part_of(recipe: Recipe, labels: tuple[str, ...]) -> Recipe:
    """The recipe for some of its methods."""
    planned = {key: digest for key, digest in recipe.planned.items() if key.partition(".")[0] in labels}
    return dataclasses.replace(recipe, methods=labels, stays=(), planned=planned, partial=True)


def next_letter(last: str) -> str:
    """Name of the part after `last` ("": of the first): a, b, ..., z, aa, ab, ..."""
    if not last:
        return "a"
    rest, letter = last[:-1], last[-1]
    return next_letter(rest) + "a" if letter == "z" else rest + chr(ord(letter) + 1)


@dataclass(frozen=True)
class Part:
    """`methods` and all earlier ones, cut anew as `plan`; what that adds to the tree, and how many lines."""

    methods: tuple[str, ...]
    plan: CutPlan
    changes: tuple[FileChange, ...]
    added: int


@dataclass(frozen=True)
class Division:
    """A slice, to be ported in parts: the `whole` cut of it, its `chosen` methods, the `worker` as it is cut."""

    whole: CutPlan
    chosen: tuple[Method, ...]
    worker: bytes

    @property
    def recipe(self) -> Recipe:
        return self.whole.recipe

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(method.name for method in self.chosen))

    def next_part(self, tree: Tree, done: tuple[str, ...]) -> Part | CutOutcome:
        """After `done`, which `tree` has: the longest run of methods whose added lines fit the budget; one method
        at least. Where such a run cannot be cut, that outcome."""
        left = tuple(label for label in self.labels if label not in done)
        budget, count = self.recipe.budget, len(left)
        # A handler has more lines than its methods: a run whose methods do not fit need not be cut.
        while budget and count > 1 and sum(map(self._size, left[:count])) > budget:
            count -= 1
        too_long = count + 1
        part = self._cut(tree, done, left[:count])
        while isinstance(part, Part) and budget and part.added > budget and count > 1:
            too_long, over = count, part.added - budget
            while count > 1 and over > 0:
                count -= 1
                over -= self._size(left[count])
            part = self._cut(tree, done, left[:count])
        # A method takes what only it needs with it, so that one fewer may have been enough.
        while isinstance(part, Part) and part.added <= budget and count + 1 < too_long:
            longer = self._cut(tree, done, left[: count + 1])
            if not isinstance(longer, Part) or longer.added > budget:
                break
            part, count = longer, count + 1
        return part

    def _size(self, label: str) -> int:
        return sum(m.block_end - m.block_start + 2 for m in self.chosen if m.name == label)

    def _cut(self, tree: Tree, done: tuple[str, ...], more: tuple[str, ...]) -> Part | CutOutcome:
        labels = (*done, *more)
        is_whole = set(labels) == set(self.labels)
        plan = self.whole if is_whole else cut_anew(part_of(self.recipe, labels), tree, self.worker)
        if not isinstance(plan, CutPlan):
            return plan
        others = (change for change in plan.changes if change.path != self.recipe.source_file)
        changes = tuple(dataclasses.replace(change, before=tree.read(change.path)) for change in others)
        return Part(more, plan, changes, sum(_added(change.before, change.after) for change in changes))


def _added(before: bytes | None, after: bytes | None) -> int:
    """Lines that `git diff --numstat` would count as added."""
    old, new = (before or b"").split(b"\n"), (after or b"").split(b"\n")
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return sum(
        end - start for kind, _, _, start, end in matcher.get_opcodes() if kind in ("insert", "replace")
    )
