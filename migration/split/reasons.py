"""Why no cut reaches the budget: the longest stretches that stay, and what stands against cutting them."""

from __future__ import annotations

from collections.abc import Iterator

from migration.code.structure import Method
from migration.errors import Refusal
from migration.split.choose import SHORTEST, Choice, Chooser, Piece
from migration.split.layout import Block, Item
from migration.split.traits import Obstacle

_SHOWN = 8


def blocking(
    method: Method, budget: int, left: int, choice: Choice, chooser: Chooser, body: Block
) -> tuple[Refusal, ...]:
    """First that the budget is missed and by how much, then one refusal a statement, the longest first."""
    taken = [(piece.run.first_line, piece.run.last_line) for piece in _all(choice.pieces)]
    stays = sorted(_staying(body, taken, chooser), key=lambda pair: -pair[0])[:_SHOWN]
    message = f"{left} of its lines would stay, and the budget is {budget}; --budget {left} can be met"
    if doubtful := chooser.cutter.doubtful:
        message += f"; may swallow exceptions, as far as is known: {', '.join(doubtful)}"
    return (
        Refusal("MG508", method.name, method.first_line, message),
        *(
            Refusal(found.code, method.name, found.line, f"{lines} lines stay: {found.message}")
            for lines, found in stays
        ),
    )


def _all(pieces: tuple[Piece, ...]) -> Iterator[Piece]:
    for piece in pieces:
        yield piece
        yield from _all(piece.inner)


def _staying(block: Block, taken: list[tuple[int, int]], chooser: Chooser) -> Iterator[tuple[int, Obstacle]]:
    for index, item in enumerate(block.items):
        if any(first <= item.first_line <= last for first, last in taken):
            continue
        lines = _uncut(item, taken)
        if lines < SHORTEST:
            continue
        inner = [found for part in item.blocks for found in _staying(part, taken, chooser)]
        if sum(count for count, _ in inner) * 2 > lines:
            yield from inner
            continue
        found = chooser.cutter.judge(block, index, index + 1, chooser.cutter.effect(item))
        if isinstance(found, Obstacle):
            yield lines, found


def _uncut(item: Item, taken: list[tuple[int, int]]) -> int:
    inside = [(first, last) for first, last in taken if item.first_line <= first and last <= item.last_line]
    lines = set(range(item.first_line, item.last_line + 1))
    for first, last in inside:
        lines -= set(range(first, last + 1))
    return len(lines)
