"""Which full blocks of ended or parked sequences are kept, by what they hold."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence


class PrefixCache:
    """Blocks by the digest of all tokens up to their end, the longest unused first.

    Holders are ids below 0, one a block. A block that is taken leaves the cache: it has one owner at a time. What a
    sequence offers is entered from its end, so that of a chain the end goes first: a beginning alone is of use, an end
    is not.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._holders: dict[bytes, int] = {}
        self._last_holder = 0

    def __len__(self) -> int:
        return len(self._holders)

    def offer(self, tokens: Sequence[int]) -> dict[int, int]:
        """Enters the full blocks of `tokens` that are not here: their place in the sequence, and their new holder."""
        kept: dict[int, int] = {}
        for at, digest in reversed(list(enumerate(self._digests(tokens)))):
            holder = self._holders.pop(digest, None)
            if holder is None:
                self._last_holder -= 1
                kept[at] = holder = self._last_holder
            self._holders[digest] = holder
        return kept

    def take(self, tokens: Sequence[int]) -> list[int]:
        """Removes the longest run of blocks that `tokens` begins with; their holders, in order."""
        taken: list[int] = []
        for digest in self._digests(tokens):
            if digest not in self._holders:
                break
            taken.append(self._holders.pop(digest))
        return taken

    def drop(self, blocks: int) -> list[int]:
        """Removes up to that many, the longest unused first; their holders."""
        oldest = list(self._holders)[: max(blocks, 0)]
        return [self._holders.pop(digest) for digest in oldest]

    def _digests(self, tokens: Sequence[int]) -> Iterator[bytes]:
        running = hashlib.blake2b(digest_size=16)
        for start in range(0, len(tokens) - self.block_size + 1, self.block_size):
            running.update(array("q", tokens[start : start + self.block_size]).tobytes())
            yield running.digest()
