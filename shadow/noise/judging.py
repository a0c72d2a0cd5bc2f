"""Judges what a run finds by the bounds of its pairing class: what is within noise is counted, not reported."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from shadow.noise.bound import Class, Judgement, judge
from shadow.noise.conditions import conditions_of
from shadow.noise.flip import FlipKind, classify_flip
from shadow.noise.store import NoiseFileError, NoiseFloor, check_conditions, load
from shadow.observation import Event, Key, Kind, Row

if TYPE_CHECKING:
    from pathlib import Path

    from shadow.diff import Comparison, Mismatch
    from shadow.messages import Setup


class Judge:
    """A reviewer (see shadow.lockstep): keeps the differences that are divergences.

    A kind that no A/A run of this class has shown has no bound: any difference in it is a divergence.
    """

    def __init__(self, floor: NoiseFloor, pairing: Class) -> None:
        self.floor, self.pairing = floor, pairing
        self.within: Counter[Kind] = Counter()  # values that differ by no more than the bound
        self.unjudged: Counter[Kind] = Counter()  # values that differ where A/A differs too, without a score
        self.near_ties = 0
        self.largest = 0.0  # of the scores within the bound

    @property
    def limit(self) -> float:
        """The bound of the logits, 0.0 where they have none."""
        bound = self.floor.bound(self.pairing, Kind.LOGITS.value)
        return 0.0 if bound is None else bound.limit or 0.0

    def __call__(self, control: Event, candidate: Event, comparison: Comparison) -> Comparison:
        kept = [
            self._token(control, candidate, one) if one.kind is Kind.TOKENS else self.number(one)
            for one in comparison.mismatches
        ]
        return replace(comparison, mismatches=tuple(one for one in kept if one is not None))

    def number(self, mismatch: Mismatch) -> Mismatch | None:
        """None where it is noise; a token is no number, it takes both rows of logits."""
        bound = self.floor.bound(self.pairing, mismatch.kind.value)
        if bound is None:
            return mismatch
        score = None if mismatch.score is None else mismatch.score.relative_l2
        match judge(True, score, bound):
            case Judgement.WITHIN_NOISE:
                self.within[mismatch.kind] += 1
                self.largest = max(self.largest, score or 0.0)
                return None
            case Judgement.UNJUDGED:
                self.unjudged[mismatch.kind] += 1
                return None
        if score is None:
            return mismatch
        limit = "bit-equal in A/A" if bound.bit_equal else f"bound {bound.limit or 0.0:.3g}"
        return replace(mismatch, detail=", ".join(filter(None, (mismatch.detail, limit))))

    def _token(self, control: Event, candidate: Event, mismatch: Mismatch) -> Mismatch | None:
        bound = self.floor.bound(self.pairing, Kind.LOGITS.value)
        sides = [_row(event, mismatch.sequence) for event in (control, candidate)]
        if bound is None or sides[0] is None or sides[1] is None or sides[0].shape != sides[1].shape:
            return mismatch
        tokens = int(mismatch.legacy), int(mismatch.candidate)
        flip = classify_flip(sides[0], sides[1], bound, tokens)
        if flip.kind is FlipKind.NEAR_TIE:
            self.near_ties += 1
            return None
        margins = " and ".join(f"{margin:.3g}" for margin in flip.margins)
        return replace(mismatch, detail=f"no near tie: margins {margins}, noise {flip.noise:.3g}")


def judge_from(path: Path, pairing: Class, control: Setup) -> Judge:
    """By the bounds that `shadow noise` stored there. NoiseFileError: they cannot be used for this run."""
    floor = load(path)
    check_conditions(path, floor, conditions_of(control))
    if pairing not in floor.classes:
        measured = ", ".join(floor.classes)
        raise NoiseFileError(
            f"{path} has no bounds for sides that differ in {pairing.value}, only {measured}"
        )
    return Judge(floor, pairing)


def _row(event: Event, sequence: str | None) -> np.ndarray | None:
    value = event.values.get(Key(Kind.LOGITS, sequence, "logits"))
    return value.values if isinstance(value, Row) else None
