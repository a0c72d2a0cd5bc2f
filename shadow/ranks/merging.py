"""What all ranks have compared and found, as one: the tally and the outcome that a report is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shadow.diff import Mismatch
from shadow.lockstep import Outcome
from shadow.messages import Done
from shadow.observation import Kind
from shadow.tally import KEPT, Tally


def order(mismatch: Mismatch) -> tuple[int, bool, int]:
    """Of several ranks' findings the earliest comes first; how a rank ended says least."""
    return mismatch.step, mismatch.kind is Kind.OUTCOME, mismatch.rank or 0


def merged(tallies: Sequence[Tally]) -> Tally:
    """Counts are added up, the findings of all ranks are in one order."""
    whole = Tally(strict_hygiene=tallies[0].strict_hygiene, required=frozenset())
    kept: list[Mismatch] = []
    for tally in tallies:
        for mine, theirs in (
            (whole.compared, tally.compared),
            (whole.differing, tally.differing),
            (whole.hygiene, tally.hygiene),
        ):
            mine.update(theirs)
        whole.points.update(tally.points)
        whole.checked.update(tally.checked)
        whole.opaque |= tally.opaque
        whole.forced_tokens += tally.forced_tokens
        whole.required |= tally.required
        kept += tally.kept
        for kind, first in tally.first_of_kind.items():
            whole.first_of_kind[kind] = min(whole.first_of_kind.get(kind, first), first, key=order)
    kept.sort(key=lambda mismatch: (not whole.counts(mismatch), order(mismatch)))
    whole.kept = kept[:KEPT]
    return whole


def unseen(tally: Tally) -> tuple[Kind, ...]:
    """Kinds of which nothing was compared on a rank. Decisions are rank 0's alone."""
    return tuple(kind for kind in tally.unseen if kind is not Kind.BOUNDARY or not tally.rank)


def slowest(outcomes: Sequence[Outcome]) -> tuple[Done | None, Done | None]:
    """What the sides say at their end; times are those of the rank that took longest. None where one is missing."""
    found = []
    for side in (0, 1):
        done = [outcome.done[side] for outcome in outcomes]
        known = [one for one in done if one is not None]
        found.append(_slowest(known) if known and len(known) == len(done) else None)
    return found[0], found[1]


def _slowest(done: Sequence[Done]) -> Done:
    return replace(
        done[0],
        decode_steps=max(one.decode_steps for one in done),
        forward_seconds=max(one.forward_seconds for one in done),
        observe_seconds=max(one.observe_seconds for one in done),
        wait_seconds=max(one.wait_seconds for one in done),
        modules={name: file for one in done for name, file in one.modules.items()},
    )
