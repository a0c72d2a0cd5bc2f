"""Parts of a port that is over its budget: how far the next one goes, and how many came before it."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass

from migration.code.structure import Method
from migration.code.tree import OverlayTree, Tree
from migration.ledger.change import FileChange
from migration.move.cut import CutOutcome, CutPlan
from migration.phases.state import before_cut, cut_anew
from migration.recipe import Recipe

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def part_of(recipe: Recipe, labels: tuple[str, ...]) -> Recipe:
    """The recipe for some of its methods."""
    planned = {key: digest for key, digest in recipe.planned.items() if key.partition(".")[0] in labels}
    return dataclasses.replace(recipe, methods=labels, stays=(), planned=planned, partial=True)


def letters(number: int) -> str:
    """Name of the part that `number` others came before: a, b, ..., z, aa, ab, ..."""
    rest, last = divmod(number, len(_LETTERS))
    return (letters(rest - 1) if rest else "") + _LETTERS[last]


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

    def parts_before(self, tree: Tree, done: tuple[str, ...]) -> int | CutOutcome:
        """How many parts it took to port `done`, which `tree` has: they are cut again, from the first."""
        files = {path: tree.read(path) for path in (self.recipe.target_file, *self.recipe.generated)}
        was: Tree = before_cut(self.recipe, tree)
        had, number = set[str](), 0
        while not had.issuperset(done):
            number += 1
            added = sum(_added(was.read(path), data) for path, data in files.items())
            if not self.recipe.budget or added <= self.recipe.budget:
                break
            part = self.next_part(was, tuple(label for label in self.labels if label in had))
            if not isinstance(part, Part):
                return part
            was = OverlayTree(was, {change.path: change.after for change in part.changes})
            had |= set(part.methods)
        return number

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
