"""Measures how far known faults move a model's logits, by injecting them into the float64 reference attention.

The query of one position is made to attend to a damaged past, in every layer alike (a page table serves all of
them), and its logits are scored against the undamaged ones. The past is of random tokens; the score of a rung is
the smallest among its trials, so that a fault that one of them misses counts as missed. What a bound makes of the
scores is said by shadow.noise.power.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shadow.noise.power import FaultScores, Point
from shadow.numerics import score_rows
from shadow.reference import History, Reference, Seen

LADDER = (64, 256, 1024, 4096)
# Below this a score is the reference's own rounding: no fault, and nothing that float32 could show.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Case:
    """Where a fault strikes: what is live, what recycled pages hold (at least two pages of it), tokens per page."""

    layer: int
    seen: Seen
    stale: Seen
    page: int


@dataclass(frozen=True)
class Fault:
    name: str
    covered_by: str
    strike: Callable[[Case], Seen]


def _newest_dropped(case: Case) -> Seen:
    return case.seen.map(lambda part: part[:-1])


def _surplus_zeros(case: Case) -> Seen:
    return case.seen.map(lambda part: torch.cat((part, part.new_zeros(case.page, *part.shape[1:]))))


def _surplus_stale(case: Case) -> Seen:
    return _joined(case, lambda live, stale: torch.cat((live, stale[: case.page])))


def _wrong_page(case: Case) -> Seen:
    start = len(case.seen.keys) // case.page // 2 * case.page

    def replaced(live: Tensor, stale: Tensor) -> Tensor:
        changed = live.clone()
        count = min(case.page, len(live) - start)
        changed[start : start + count] = stale[:count]
        return changed

    return _joined(case, replaced)


def _garbage_head(case: Case) -> Seen:
    if case.layer:
        return case.seen
    values = case.seen.values.clone()
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(values[:, 0].shape, generator=generator, dtype=values.dtype)
    values[:, 0] = noise * values[:, 0].std()
    return Seen(case.seen.keys, values, case.seen.index)


def _values_scaled(case: Case) -> Seen:
    return Seen(case.seen.keys, case.seen.values * 1.01, case.seen.index)


def _pages_swapped(case: Case) -> Seen:
    page = case.page
    return case.seen.map(lambda part: torch.cat((part[page : 2 * page], part[:page], part[2 * page :])))


def _joined(case: Case, join: Callable[[Tensor, Tensor], Tensor]) -> Seen:
    live, stale = case.seen, case.stale
    index = None
    if live.index is not None and stale.index is not None:
        index = join(live.index, stale.index)
    return Seen(join(live.keys, stale.keys), join(live.values, stale.values), index)


_LENGTHS = "kv_len against pages x page size"
_TABLE = "page_table: live pages in order"
_CONTENT = "kv: digests of content by position"

FAULTS = (
    Fault("newest token dropped", _LENGTHS, _newest_dropped),
    Fault("surplus zero page", _LENGTHS, _surplus_zeros),
    Fault("surplus stale page", _LENGTHS, _surplus_stale),
    Fault("wrong page", f"{_TABLE}; {_CONTENT}", _wrong_page),
    Fault("one garbage head in one layer", _CONTENT, _garbage_head),
    Fault("values scaled by 1 %", _CONTENT, _values_scaled),
    Fault("two pages swapped", f"{_TABLE}; {_CONTENT}", _pages_swapped),
)


def ladder(reference: Reference, page: int, lengths: Sequence[int] = LADDER) -> tuple[int, ...]:
    """Those of `lengths` that fit the model's context and hold three pages: two to swap, one for the trials."""
    longest = reference.config.max_position_embeddings
    return tuple(sorted({length for length in lengths if 3 * page <= length <= longest}))


def measure(
    reference: Reference, page: int, lengths: Sequence[int] = LADDER, *, seed: int = 0, trials: int = 3
) -> tuple[FaultScores, ...]:
    """Scores of every fault at each rung of `ladder`. ValueError where no rung is left."""
    rungs = ladder(reference, page, lengths)
    if not rungs:
        raise ValueError(
            f"no length of {list(lengths)} holds three pages of {page} tokens and fits the model"
        )
    generator = torch.Generator().manual_seed(seed)
    vocabulary = reference.config.vocab_size

    def history(length: int) -> History:
        return reference.history(torch.randint(vocabulary, (length,), generator=generator).tolist())

    live, stale = history(rungs[-1]), history(2 * page)
    found = {
        fault.name: {rung: [*_trials(reference, fault, live, stale, page, rung, trials)] for rung in rungs}
        for fault in FAULTS
    }
    return tuple(
        FaultScores(
            fault.name,
            fault.covered_by,
            tuple(Point(rung, min(scores)) for rung, scores in found[fault.name].items()),
        )
        for fault in FAULTS
    )


def _trials(
    reference: Reference, fault: Fault, live: History, stale: History, page: int, rung: int, trials: int
) -> Iterator[float]:
    """The scores at some positions up to the rung, spread over the last page."""
    for trial in range(trials):
        position = rung - 1 - trial * page // trials
        clean = reference.logits(live, position)
        moved = reference.logits(
            live, position, lambda layer, seen: fault.strike(Case(layer, seen, stale.layers[layer], page))
        )
        score = score_rows(clean.numpy(), moved.numpy()).maximum
        yield score if score > _ROUNDING else 0.0
