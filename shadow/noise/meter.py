"""What A/A runs show, step by step and kind by kind: the scores that bounds are made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shadow.noise.bound import StepScore
from shadow.observation import Event, Kind

if TYPE_CHECKING:
    from shadow.diff import Comparison, Mismatch


class Meter:
    """A reviewer (see shadow.lockstep) that notes the largest score of each kind at each event, and lets all pass.

    Tokens have no bound of their own: a flip is judged by the logits it came from.
    """

    def __init__(self) -> None:
        self._steps: dict[Kind, list[StepScore]] = {}

    def __call__(self, control: Event, candidate: Event, comparison: Comparison) -> Comparison:
        found: dict[Kind, list[Mismatch]] = {}
        for mismatch in comparison.mismatches:
            found.setdefault(mismatch.kind, []).append(mismatch)
        for kind in {*comparison.compared, *found} - {Kind.TOKENS}:
            self._steps.setdefault(kind, []).append(_largest(found.get(kind, [])))
        return comparison

    @property
    def steps(self) -> Mapping[Kind, list[StepScore]]:
        """The step scores of each kind that was compared."""
        return self._steps


def _largest(mismatches: list[Mismatch]) -> StepScore:
    scores = [None if one.score is None else one.score.relative_l2 for one in mismatches]
    if None in scores:
        return StepScore(True, None)
    return StepScore(bool(scores), max((score for score in scores if score is not None), default=0.0))
