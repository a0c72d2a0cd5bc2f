"""The blocks of the device: which sequence holds which, and what the prefix cache keeps beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchgen.kv import KVExhausted as PoolExhausted
from batchgen.scheduler.engine.prefix_cache import PrefixCache
from batchgen.scheduler.errors import EffectError, KvExhausted
from batchgen.scheduler.sequences import SequenceState


class Blocks:
    """Pages of a GPU pool (or of two mirrored ones), held by sequences under their `slot_idx`.

    A block belongs to one sequence, to the prefix cache or to nobody; in the pool's ledger what the cache holds
    stands under ids below 0. `cache` None: full blocks are not kept.
    """

    def __init__(self, pool: Any, cache: PrefixCache | None) -> None:
        self.pool, self.cache = pool, cache
        self.block_size: int = pool.config.page_size

    @property
    def free(self) -> int:
        return int(self.pool.get_stats().num_free_pages)

    @property
    def total(self) -> int:
        return int(self.pool.get_stats().num_total_pages)

    @property
    def cached(self) -> int:
        return 0 if self.cache is None else len(self.cache)

    def open(self, seq: SequenceState) -> None:
        self.pool.allocate_pages_for_sequences([seq.slot_idx], [0])

    def cover(self, seq: SequenceState, tokens: int) -> None:
        """Has the sequence hold blocks for that many tokens; takes from the prefix cache what it lacks.

        KvExhausted: nothing was given.
        """
        missing = -(-tokens // self.block_size) - len(seq.block_table)
        if missing <= 0:
            return
        if missing > self.free:
            self.reclaim(missing - self.free)
        try:
            taken = self.pool.grow_pages_for_sequences([seq.slot_idx], [missing])
        except PoolExhausted as error:
            raise KvExhausted(
                f"slot {seq.slot_idx} needs {missing} blocks for {tokens} tokens, {self.free} of {self.total} are free"
            ) from error
        seq.block_table.extend(taken[seq.slot_idx])

    def adopt(self, seq: SequenceState, tokens: Sequence[int]) -> int:
        """Moves to an empty sequence the blocks that the cache has of the beginning of `tokens`; how many tokens they
        hold. The last token is never among them: its logits have to be computed."""
        if self.cache is None:
            return 0
        found = self.cache.take(tokens[:-1])
        if not found:
            return 0
        self.pool.free_pages_for_sequences([seq.slot_idx])
        pages = [self.pool.pages_of(holder)[0] for holder in found]
        self.pool.regroup_pages(found, {seq.slot_idx: pages})
        seq.block_table.extend(pages)
        return len(pages) * self.block_size

    def close(self, seq: SequenceState, *, holds: Sequence[int] = ()) -> None:
        """Frees the blocks of a sequence; the cache keeps those full ones of the tokens in them that it does not have.

        EffectError for a sequence that holds nothing any more.
        """
        slot = seq.slot_idx
        if not self.pool.has_sequence(slot):
            raise EffectError(f"slot {slot} was released before")
        if self.cache is not None:
            kept = self.cache.offer(holds)
            if kept:
                pages = self.pool.pages_of(slot)
                left = [page for at, page in enumerate(pages) if at not in kept]
                self.pool.regroup_pages(
                    [slot], {slot: left} | {holder: [pages[at]] for at, holder in kept.items()}
                )
        self.pool.free_pages_for_sequences([slot])
        seq.block_table.clear()

    def reclaim(self, blocks: int) -> int:
        """Takes up to that many blocks from the cache, the longest unused first; how many became free."""
        dropped = [] if self.cache is None else self.cache.drop(blocks)
        if dropped:
            self.pool.free_pages_for_sequences(dropped)
        return len(dropped)
