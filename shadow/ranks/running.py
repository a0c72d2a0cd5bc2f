"""Compares all ranks at the same time, one thread for each pair of sides, until all are done or one has ended.

A rank that has ended leaves the others waiting for it in their next collective: then all are stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread

from shadow.lockstep import Outcome
from shadow.ranks.side import End, Ended, RankSide
from shadow.tally import Tally

_LOOK = 0.25  # seconds between two looks at the processes
_QUIET = 2.0  # seconds without a message after which nothing more is expected of the ranks that are left
_AT_MOST = 8.0  # seconds that they have in all


@dataclass(frozen=True)
class Pair:
    """One rank of either path, and what its comparison has found."""

    rank: int
    control: RankSide
    candidate: RankSide
    tally: Tally

    @property
    def sides(self) -> tuple[RankSide, RankSide]:
        return self.control, self.candidate


@dataclass(frozen=True)
class Ran:
    """`outcomes` by rank, of those whose comparison came to an end of its own; `ends` of all sides where one had to be
    stopped, empty where every rank is done."""

    outcomes: dict[int, Outcome]
    ends: tuple[End, ...] = ()


class _Run:
    def __init__(self, pairs: Sequence[Pair], compare: Callable[[Pair], Outcome]) -> None:
        self.pairs, self.compare = pairs, compare
        self.sides = [side for pair in pairs for side in pair.sides]
        self.said: SimpleQueue[tuple[int, Outcome | BaseException]] = SimpleQueue()
        self.over: dict[int, Outcome | None] = {}  # None: ended by a side
        self.threads = [Thread(target=self._one, args=(pair,), name=f"rank {pair.rank}") for pair in pairs]

    def _one(self, pair: Pair) -> None:
        try:
            self.said.put((pair.rank, self.compare(pair)))
        except BaseException as error:  # handed on to the thread that waits for all of them
            self.said.put((pair.rank, error))

    def hear(self, seconds: float) -> bool:
        """Whether some rank's comparison came to its end within that time. Raises what it raised."""
        try:
            rank, said = self.said.get(timeout=seconds)
        except Empty:
            return False
        if isinstance(said, BaseException) and not isinstance(said, Ended):
            raise said
        self.over[rank] = None if isinstance(said, Ended) else said
        return True

    def all_well(self) -> bool:
        """Waits until all ranks are done, True, or something is amiss."""
        while len(self.over) < len(self.pairs):
            if not self.hear(_LOOK) and any(side.code() is not None for side in self.sides):
                return False
            if any(outcome is None or None in outcome.done for outcome in self.over.values()):
                return False
        return True

    def settle(self) -> None:
        """Lets the ranks that are left come to what they have to say: the cause may be theirs."""
        started = quiet_since = time.monotonic()
        received = -1
        while len(self.over) < len(self.pairs):
            self.hear(0.1)
            now, count = time.monotonic(), sum(side.received for side in self.sides)
            if count != received:
                received, quiet_since = count, now
            if now - quiet_since > _QUIET or now - started > _AT_MOST:
                return

    def stop(self) -> None:
        for side in self.sides:
            side.kill()
        for thread in self.threads:
            if thread.ident is not None:
                thread.join()


def run_ranks(pairs: Sequence[Pair], compare: Callable[[Pair], Outcome]) -> Ran:
    """`compare` is called in a thread for each pair. No process of a side and no thread is left, whatever happens."""
    run = _Run(pairs, compare)
    ends: list[End] = []
    try:
        for thread in run.threads:
            thread.start()
        if not run.all_well():
            run.settle()
            ends = [side.end() for side in run.sides]
    finally:
        run.stop()
    outcomes = {rank: outcome for rank, outcome in run.over.items() if outcome is not None}
    return Ran(outcomes, tuple(side.heard(end) for end, side in zip(ends, run.sides, strict=False)))
