"""Where to cut: the cheapest set of runs that leaves every piece within the budget.

The cost of a run is the names that cross its two ends, and something for being a helper at all, for
standing deep inside the method, for beginning or ending where the author saw no seam. For a block
all choices that are best for some length make up its front, shortest first; the front of a method is
built from the fronts of the blocks in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from migration.split.layout import Block, Item
from migration.split.runs import Cutter, Run
from migration.split.text import Style, call_lines, helper_overhead
from migration.split.traits import Obstacle

#: A run of fewer lines is not worth a helper.
SHORTEST = 4
_HELPER, _DEPTH, _NO_SEAM, _NO_COMMENT = 5, 2, 4, 1


@dataclass(frozen=True)
class Piece:
    """A run that becomes a helper, and the helpers made from inside of it."""

    run: Run
    inner: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """`lines` that remain of some stretch of the method when `pieces` are cut out of it."""

    lines: int
    cost: int
    pieces: tuple[Piece, ...]


Front = tuple[Choice, ...]


def best(choices: list[Choice]) -> Front:
    """Those that no other one beats in both lines and cost, shortest first."""
    kept: list[Choice] = []
    for choice in sorted(choices, key=lambda choice: (choice.lines, choice.cost)):
        if not kept or choice.cost < kept[-1].cost:
            kept.append(choice)
    return tuple(kept)


def _both(left: Front, right: Front) -> Front:
    if len(right) == 1 and not right[0].cost:
        lines = right[0].lines
        return tuple(Choice(choice.lines + lines, choice.cost, choice.pieces) for choice in left)
    return best(
        [Choice(a.lines + b.lines, a.cost + b.cost, a.pieces + b.pieces) for a in left for b in right]
    )


@dataclass
class Chooser:
    """Fronts of one method; `judged` is where reasons against single statements are kept for a report."""

    cutter: Cutter
    style: Style
    budget: int

    def front(self, block: Block) -> Front:
        """The choices for a block."""
        items = block.items
        choices: list[list[Choice]] = [[] for _ in range(len(items) + 1)]
        choices[0] = [Choice(0, 0, ())]
        within = [self.variants(item) for item in items]
        for first, item in enumerate(items):
            reached = best(choices[first])
            choices[first + 1] += _both(reached, within[first])
            for last, choice in self._cuts(block, first, within):
                left = Choice(item.blank_lines + choice.lines, choice.cost, choice.pieces)
                choices[last] += _both(reached, (left,))
        return best(choices[-1])

    def variants(self, item: Item) -> Front:
        """The choices for a statement that stays: those for the blocks in it."""
        found: Front = (Choice(item.lines - sum(_lines(block) for block in item.blocks), 0, ()),)
        for block in item.blocks:
            found = _both(found, self.front(block))
        return found

    def _cuts(self, block: Block, first: int, within: list[Front]) -> Iterator[tuple[int, Choice]]:
        """(end, what remains) for every run that begins at `first` and fits the budget as a helper."""
        effect = None
        inside: Front = (Choice(-block.items[first].blank_lines, 0, ()),)
        for last in range(first + 1, len(block.items) + 1):
            item = block.items[last - 1]
            effect = self.cutter.effect(item) if effect is None else self.cutter.effect(item, effect)
            inside = _both(inside, within[last - 1])
            if inside[0].lines > self.budget:
                return
            run = self.cutter.judge(block, first, last, effect)
            if isinstance(run, Obstacle):
                if run.stands:
                    return
                continue
            overhead = helper_overhead(run, self.style)
            fits = [choice for choice in inside if choice.lines + overhead <= self.budget]
            left = len(call_lines(run, "x" * self.style.longest_name(run), self.style))
            if fits and run.last_line - run.first_line + 1 >= max(SHORTEST, left + 2):
                chosen = fits[-1]
                yield last, Choice(left, chosen.cost + self._cost(run), (Piece(run, chosen.pieces),))

    def _cost(self, run: Run) -> int:
        block = run.block
        cost = len(run.parameters) + len(run.results) + _HELPER + _DEPTH * block.depth
        if run.first_line == run.items[0].first_line:
            cost += _NO_COMMENT if run.items[0].is_marked or not run.first else _NO_SEAM
        if run.last < len(block.items) and not block.items[run.last].is_marked:
            cost += _NO_SEAM
        return cost


def _lines(block: Block) -> int:
    return sum(item.lines for item in block.items)
