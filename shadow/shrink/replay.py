"""Runs a scenario on both sides up to its first divergence, and says what that is."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from shadow.diff import Mismatch, Nature
from shadow.messages import HarnessError, Setup
from shadow.observation import Kind
from shadow.pair import compare_sides
from shadow.shrink.events import EventCount
from shadow.shrink.scenario import Scenario
from shadow.verdict import where


@dataclass(frozen=True)
class Signature:
    """What makes two divergences the same bug: sort of value, nature, and the field without its numbers.

    A smaller scenario that fails in another way is another bug, and no step on the way.
    """

    kind: Kind
    nature: Nature
    field: str


def signature_of(mismatch: Mismatch) -> Signature:
    return Signature(mismatch.kind, mismatch.nature, re.sub(r"\d+", "#", mismatch.field))


@dataclass(frozen=True)
class Found:
    """The first divergence of one run: its signature, its coordinates in words, how much happened before."""

    signature: Signature
    where: str
    sequence: str | None
    events: int


@dataclass
class Replay:
    """Two sides that any scenario can be run on. `control`'s and `candidate`'s batches and options are replaced.

    `runs` counts the comparisons so far.
    """

    control: Setup
    candidate: Setup
    timeout: float = 300
    on_run: Callable[[int], None] = lambda runs: None
    runs: int = field(default=0, init=False)

    def run(self, scenario: Scenario, only: frozenset[Kind] | None = None) -> Found | None:
        """The first divergence, None where both sides are equal. HarnessError: neither can be said.

        `only`: what to look at; events are counted only where nothing is left out.
        """
        self.runs += 1
        self.on_run(self.runs)
        count = EventCount()
        with tempfile.TemporaryDirectory(prefix="shadow-scenario-") as folder:
            batches = scenario.write(Path(folder))
            control, candidate = (
                replace(side, batches=batches, options={**side.options, **scenario.options}, only=only)
                for side in (self.control, self.candidate)
            )
            tally, outcome = compare_sides(
                control, candidate, timeout=self.timeout, watch=count, stop=lambda tally: tally.total > 0
            )
        if outcome.trouble is not None:
            raise HarnessError(outcome.trouble.message)
        if tally.first is None:
            return None
        return Found(signature_of(tally.first), where(tally.first), tally.first.sequence, count.total)
