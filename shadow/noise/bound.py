"""One bound per pairing class and kind of observation: what two sides that do the same were seen to differ by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Class(StrEnum):
    """What differs between the two sides besides the code under test. Bounds are never shared between classes."""

    SAME = "same"  # nothing
    BATCH_ORDER = "batch-order"  # the order of the requests, so which row a sequence is
    BUCKET = "bucket"  # replay on padded static buffers against eager forwards
    THREADS = "threads"  # how many threads a side computes with
    DTYPE = "dtype"  # the type of weights and activations
    SPLIT = "split"  # into how many parts attention splits a row's KV
    BACKEND = "backend"  # which kernels compute


class Judgement(StrEnum):
    EQUAL = "equal"
    WITHIN_NOISE = "within noise"
    UNJUDGED = "not judged"  # A/A differs there too, and there is no score to bound
    DIVERGENCE = "divergence"


@dataclass(frozen=True)
class StepScore:
    """The largest score among all rows of one step. None: values differ that have no score (digests, say)."""

    differs: bool
    score: float | None = 0.0

    def __post_init__(self) -> None:
        if not self.differs and self.score != 0.0:
            raise ValueError(f"a step without a difference has score 0, not {self.score}")
        if self.score is not None and not self.score >= 0:
            raise ValueError(f"a score is 0 or more, not {self.score}")


@dataclass(frozen=True)
class Bound:
    """What `runs` A/A runs of `pairing` showed of `kind` (a name of shadow.observation.Kind) in `steps` steps.

    `maximum`: the largest step score of all; None where values without a score differed, infinite scores
    included. `bit_equal`: no bit differed anywhere. ValueError for numbers that no measurement gives.
    """

    pairing: Class
    kind: str
    runs: int
    steps: int
    maximum: float | None
    margin: float
    bit_equal: bool

    def __post_init__(self) -> None:
        if self.runs < 1 or self.steps < self.runs:
            raise ValueError(
                f"{self.runs} runs and {self.steps} steps: at least one run, of at least one step"
            )
        if not 1 <= self.margin < math.inf:
            raise ValueError(f"a margin is 1 or more, not {self.margin}")
        if self.maximum is not None and not 0 <= self.maximum < math.inf:
            raise ValueError(f"the largest score is 0 or more and finite, not {self.maximum}")
        if self.bit_equal and self.maximum != 0:
            raise ValueError(f"bit-equal runs have the largest score 0, not {self.maximum}")

    @property
    def limit(self) -> float | None:
        """The largest score that passes: `maximum` x `margin`, 0.0 where every run was bit-equal."""
        return None if self.maximum is None else self.maximum * self.margin

    @property
    def false_alarms_per_step(self) -> float:
        """1 / (steps + 1): at most so likely does the step score of one more A/A step exceed `maximum`.

        Holds for any distribution, if that step is exchangeable with those measured (same workload, same
        machine), for the step's largest score: rows, heads and layers need no further correction. It is the
        rate without the margin; the margin can only lower it, by an amount that nobody has measured.
        """
        return 1 / (self.steps + 1)

    @property
    def false_alarms_per_run(self) -> float:
        """1 / (runs + 1): the same for the largest score of one more whole run; only runs need be exchangeable."""
        return 1 / (self.runs + 1)


def calibrate(pairing: Class, kind: str, runs: Sequence[Sequence[StepScore]], margin: float) -> Bound:
    """The bound that the step scores of A/A runs give. ValueError without a run, or for a run without steps."""
    if not runs or not all(runs):
        raise ValueError(f"no bound for {kind}: {len(runs)} runs, each must show it at least once")
    steps = [step for run in runs for step in run]
    scores = [math.inf if step.score is None else step.score for step in steps]
    largest = max(scores)
    return Bound(
        pairing=pairing,
        kind=kind,
        runs=len(runs),
        steps=len(steps),
        maximum=largest if largest < math.inf else None,
        margin=margin,
        bit_equal=not any(step.differs for step in steps),
    )


def judge(differs: bool, score: float | None, bound: Bound) -> Judgement:
    """What a difference with this score is under `bound`; `score` None: it has none.

    A bound of bit-equal runs passes nothing that differs, a signed zero (score 0) included. An infinite score
    (NaN, infinity on one side) passes no bound.
    """
    if not differs:
        return Judgement.EQUAL
    if bound.bit_equal or score == math.inf:
        return Judgement.DIVERGENCE
    if bound.limit is None:
        return Judgement.UNJUDGED
    return Judgement.WITHIN_NOISE if score is not None and score <= bound.limit else Judgement.DIVERGENCE
