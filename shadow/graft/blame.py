"""Tries the grafts one after the other and says which makes the divergence of the logits vanish."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shadow.diff import Mismatch
from shadow.graft.input import Input
from shadow.messages import Graft, Setup
from shadow.observation import Kind, Point
from shadow.pair import compare_sides
from shadow.tally import Tally


@dataclass(frozen=True)
class GraftResult:
    """`differing`: rows of logits that still differ at the step with the legacy's input; None: it did not run."""

    input: Input
    differing: int | None
    trouble: str = ""

    @property
    def guilty(self) -> bool:
        return self.differing == 0


def blame(
    control: Setup,
    candidate: Setup,
    first: Mismatch,
    *,
    timeout: float,
) -> tuple[GraftResult, ...]:
    """One result for each input up to the guilty one, for the first decode step at which logits differ (`first`).

    Causes come before what they cause: a wrong page table is healed by the legacy's content too, but tried first.

    ValueError: `first` is not about the logits of a decode step.
    """
    if first.kind is not Kind.LOGITS or first.point is not Point.DECODE:
        raise ValueError(
            f"grafting explains logits of a decode step, not {first.kind.value} at {first.point.value}"
        )
    results = []
    for which in Input:
        sides = (
            replace(side, graft=Graft(first.step, which.value), only=frozenset((Kind.LOGITS,)))
            for side in (control, candidate)
        )
        tally, outcome = compare_sides(
            *sides, timeout=timeout, stop=lambda tally: _is_past(tally, first.step)
        )
        if outcome.trouble is not None:
            results.append(GraftResult(which, None, outcome.trouble.message))
        elif not _is_past(tally, first.step):
            results.append(GraftResult(which, None, "the candidate did not get through the step with it"))
        else:
            results.append(GraftResult(which, _differing(tally, first.step)))
        if results[-1].guilty:
            break
    return tuple(results)


def _is_past(tally: Tally, step: int) -> bool:
    """Whether the event of that decode step has been compared."""
    return tally.points[Point.DECODE] > step


def _differing(tally: Tally, step: int) -> int:
    return sum(m.kind is Kind.LOGITS and m.step == step and m.point is Point.DECODE for m in tally.kept)


def verdict(results: tuple[GraftResult, ...]) -> str:
    """The guilty input in one line."""
    guilty = next((result for result in results if result.guilty), None)
    if guilty is not None:
        return f"guilty input: {guilty.input.value} (with the legacy's the logits are equal)"
    if all(result.differing is None for result in results):
        return f"nothing could be grafted: {results[0].trouble}" if results else "nothing was grafted"
    return "no single input is guilty: the forward itself computes otherwise, or several inputs differ"
