"""Which new requests may start, and what is spilled for one that waits: frozen values in, plans out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchgen.scheduler.snapshots import VictimRow
from batchgen.scheduler.victims import choose_admission_victim

#: Blocks that a row grows into, free for each that starts.
GROWTH_BLOCKS = 1
#: The active rows are to find free between them what so many tokens of each take. With a block for each, a tenth of a
#: scarce pool of 16-token blocks stays idle while requests wait; with nothing, rows are parked as soon as they have
#: started (`python -m benchmarks.step_pressure`).
GROWTH_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Room:
    """`blocks` of `block_size` tokens that are free or only cached, `rows` more that may be active, and the tokens that
    one tick prefills."""

    blocks: int
    rows: int
    tokens: int
    block_size: int

    def reserved(self, active: int) -> int:
        """The blocks that `active` rows keep to grow into."""
        return min(active * GROWTH_BLOCKS, blocks_of(active * GROWTH_TOKENS, self.block_size))


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A request that has not started: its prompt in tokens, and in blocks."""

    tokens: int
    blocks: int


def blocks_of(tokens: int, block_size: int) -> int:
    return -(-tokens // block_size)


def never_fits(prompt: int, max_tokens: int, block_size: int, total_blocks: int, context: int) -> str | None:
    """Why a request can never finish here, None: it can. A row that is parked comes back with a block to grow into,
    so one block of the pool is nobody's."""
    if prompt < 1:
        return "the prompt has no tokens"
    if max_tokens < 1:
        return f"max_tokens is {max_tokens}; it must be at least 1"
    asked = f"prompt of {prompt} tokens + max_tokens {max_tokens}"
    if prompt + max_tokens > context:
        return f"{asked} = {prompt + max_tokens} exceeds the context of {context} tokens"
    blocks = blocks_of(prompt + max_tokens, block_size) + GROWTH_BLOCKS
    if blocks > total_blocks:
        return (
            f"{asked} needs {blocks} pages of {block_size} tokens, with the one it grows into; the pool has "
            f"{total_blocks}: lower max_tokens or raise --gpu-pages"
        )
    return None


def plan_admission(room: Room, active: int, parked: int, waiting: Sequence[Newcomer]) -> int:
    """How many of `waiting` start now, in their order.

    None while a row is parked: it was here first. A newcomer needs its prompt's blocks, and a block to grow into for
    itself; the rows before it keep what is reserved. The first prompt may be longer than what a tick prefills.
    """
    if parked:
        return 0
    blocks, tokens, started = room.blocks - room.reserved(active), room.tokens, 0
    for newcomer in waiting[: max(room.rows, 0)]:
        blocks -= newcomer.blocks + GROWTH_BLOCKS
        tokens -= newcomer.tokens
        if blocks < 0 or (tokens < 0 and started):
            break
        started += 1
    return started


def plan_swap_out(room: Room, rows: Sequence[VictimRow], newcomer: Newcomer) -> tuple[int, ...]:
    """The rows to spill so that `newcomer` can start: those with the most blocks, as few as do.

    None where it lacks only the blocks that others may grow into, or spilling does not help; and never a row that has
    just come back: it would be parked again before it has written a token.
    """
    if room.rows <= 0 or newcomer.blocks + GROWTH_BLOCKS <= room.blocks:
        return ()
    chosen: list[int] = []
    left = {index: row for index, row in enumerate(rows) if row.outputs >= row.immune_until}
    blocks = room.blocks
    while newcomer.blocks + GROWTH_BLOCKS + room.reserved(len(rows) - len(chosen)) > blocks:
        order = list(left)
        at = choose_admission_victim([left[index] for index in order])
        if at is None:
            return ()
        blocks += left.pop(order[at]).blocks
        chosen.append(order[at])
    return tuple(chosen)
