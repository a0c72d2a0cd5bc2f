"""`shadow compare --ranks N` as a function: every rank of two paths against each other, to one report."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Lock

from reports import Band, Fact, Report
from shadow.canary import EVERY
from shadow.compare import Onlookers, circumstances_of
from shadow.diff import Comparison, Mismatch
from shadow.lockstep import Outcome, Reviewer, Trouble, as_found, run_lockstep
from shadow.messages import Setup
from shadow.nursery import shared
from shadow.observation import Event, Kind
from shadow.pairing import SAME, Pairing
from shadow.ranks.blame import Blame, blame
from shadow.ranks.merging import merged, order, slowest
from shadow.ranks.place import Place
from shadow.ranks.report import with_ranks
from shadow.ranks.running import Pair, run_ranks
from shadow.ranks.side import RankSide
from shadow.tally import Tally
from shadow.verdict import build_report

PER_NODE = "NUM_GPUS_PER_NODE"
_PER_NODE = 8  # what batchgen takes where nobody says
_SHARED = (Kind.PAGE_TABLE, "host.free_pages")


@dataclass(frozen=True)
class Ranks:
    """`number`: on each side. `mutant`: the one of the candidate that gets the fault, None: all of them."""

    number: int
    mutant: int | None = None


def compare_ranks_and_report(
    control: Setup,
    candidate: Setup,
    ranks: Ranks,
    *,
    timeout: float,
    pairing: Pairing = SAME,
    on_step: Callable[[int, int], None] = lambda step, differing: None,
    on_first: Callable[[Mismatch], None] = lambda mismatch: None,
    watch: Callable[[Event, Event], None] = lambda control, candidate: None,
    review: Reviewer = as_found,
    band: Band | None = None,
    names: tuple[str, str] | None = None,
    facts: tuple[Fact, ...] = (),
    strict_hygiene: bool = False,
    canary_every: int = EVERY,
) -> Report:
    """As shadow.compare.compare_and_report; `watch` sees the events of rank 0, the others are of all ranks."""
    started = time.monotonic()
    per_node = _per_node(control)
    if per_node > 1:
        pairing = replace(pairing, ignored=pairing.ignored | {_SHARED})
    tallies = [Tally(strict_hygiene=strict_hygiene, rank=rank) for rank in range(ranks.number)]
    at_once = Lock()

    def judged(ours: Event, theirs: Event, comparison: Comparison) -> Comparison:
        with at_once:
            return review(ours, theirs, comparison)

    def first(mismatch: Mismatch) -> None:
        on_first(min((tally.first for tally in tallies if tally.first is not None), key=order))

    onlookers = [
        Onlookers(pairing, canary_every, _unseen if tally.rank else watch, judged, first) for tally in tallies
    ]

    def compared(pair: Pair) -> Outcome:
        looking = onlookers[pair.rank]
        return run_lockstep(
            pair.control,
            pair.candidate,
            pair.tally,
            lambda step: on_step(step, sum(tally.total for tally in tallies)),
            pairing,
            watch=looking.watch,
            review=looking.review,
            stop=looking.note,
        )

    with _started(control, candidate, ranks, tallies, timeout) as pairs:
        ran = run_ranks(pairs, compared)
        hello = (pairs[0].control.hello, pairs[0].candidate.hello)
    outcomes = {rank: onlookers[rank].canary.judged(outcome) for rank, outcome in ran.outcomes.items()}
    found = blame(ran.ends, parted=any(_parted(outcome) for outcome in outcomes.values()))
    for rank, mismatch in found.found:
        tallies[rank].compared[mismatch.kind] += 1
        tallies[rank].find(mismatch)
    whole = merged(tallies)
    done = slowest([outcomes.get(rank, Outcome()) for rank in range(ranks.number)])
    outcome = Outcome(hello, done, _trouble(found, outcomes), found.traceback)
    guilty = 0 if whole.first is None else whole.first.rank or 0
    looking = onlookers[guilty]
    circumstances = circumstances_of(
        control,
        candidate,
        names,
        (*facts, *_facts(control, ranks, per_node, guilty), looking.canary.fact),
        time.monotonic() - started,
    )
    pictures = looking.pictures(tallies[guilty], outcome, band)
    account = looking.narrator.account(tallies[guilty])
    return with_ranks(build_report(circumstances, whole, outcome, account, pictures), tallies, ran.ends)


def _unseen(control: Event, candidate: Event) -> None:
    pass


def _parted(outcome: Outcome) -> bool:
    return outcome.trouble is None and None in outcome.done


def _trouble(found: Blame, outcomes: dict[int, Outcome]) -> Trouble | None:
    if found.trouble is not None:
        return found.trouble
    for rank, outcome in sorted(outcomes.items()):
        if outcome.trouble is not None:
            return Trouble(f"rank {rank}: {outcome.trouble.message}", outcome.trouble.detail)
    return None


@contextmanager
def _started(
    control: Setup, candidate: Setup, ranks: Ranks, tallies: list[Tally], timeout: float
) -> Iterator[list[Pair]]:
    """The processes of all ranks of both sides."""
    loaded = [shared(setup.tree, setup.options, setup.environment) for setup in (control, candidate)]
    common = loaded[0] if loaded[0] == loaded[1] else None
    with ExitStack() as stack:
        ports = [stack.enter_context(_meeting()) for _ in loaded]

        def side(setup: Setup, rank: int, *, is_control: bool) -> RankSide:
            name = f"{'legacy' if is_control else 'candidate'} side of rank {rank}"
            placed = replace(setup, place=Place(rank, ranks.number, ports[not is_control]))
            if ranks.mutant is not None and rank != ranks.mutant:
                placed = replace(placed, mutant=None)
            return stack.enter_context(RankSide(name, placed, timeout, common, control=is_control))

        yield [
            Pair(rank, side(control, rank, is_control=True), side(candidate, rank, is_control=False), tally)
            for rank, tally in enumerate(tallies)
        ]


@contextmanager
def _meeting() -> Iterator[int]:
    """The port of a store at which the ranks of one side meet. It is here, and so outlives any rank."""
    import torch.distributed as dist

    store = dist.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60)
    )
    yield store.port


def _per_node(setup: Setup) -> int:
    """Ranks that share a host pool; what is no number the worker refuses."""
    text = setup.environment.get(PER_NODE, os.environ.get(PER_NODE, ""))
    return int(text) if text.isascii() and text.isdigit() else _PER_NODE


def _facts(setup: Setup, ranks: Ranks, per_node: int, shown: int) -> Iterator[Fact]:
    nodes = -(-ranks.number // max(1, per_node))
    yield Fact(
        "ranks", f"{ranks.number} on each side, {nodes} host pool{'s' * (nodes > 1)} ({PER_NODE} {per_node})"
    )
    if ranks.mutant is not None:
        yield Fact("mutant rank", str(ranks.mutant))
    yield Fact("threads per side", f"{setup.threads} of each rank")
    yield Fact("pictures and account", f"of rank {shown}; times are those of the slowest rank")
    if per_node > 1:
        yield Fact(
            "not compared", "free pages of host pools: the ranks of a node take them at moments of their own"
        )
