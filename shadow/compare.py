"""`shadow compare` as a function: the worker of two source trees on the same requests, to a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from reports import Band, Fact, Picture, Report
from shadow.canary import EVERY, Canary
from shadow.diff import Comparison, Mismatch
from shadow.explain import Narrator
from shadow.graft.blame import blame, verdict
from shadow.lockstep import Outcome, Reviewer, Watcher, as_found
from shadow.messages import Setup
from shadow.nursery import code_digest
from shadow.observation import Event, Kind, Point
from shadow.pair import compare_sides
from shadow.pairing import SAME, Pairing
from shadow.pictures.album import Album
from shadow.tally import Tally
from shadow.verdict import Circumstances, build_report


def compare_and_report(
    control: Setup,
    candidate: Setup,
    *,
    timeout: float,
    pairing: Pairing = SAME,
    on_step: Callable[[int, int], None] = lambda step, differing: None,
    on_first: Callable[[Mismatch], None] = lambda mismatch: None,
    watch: Watcher = lambda control, candidate: None,
    review: Reviewer = as_found,
    band: Band | None = None,
    names: tuple[str, str] | None = None,
    facts: tuple[Fact, ...] = (),
    graft: bool = False,
    strict_hygiene: bool = False,
    canary_every: int = EVERY,
) -> Report:
    """Runs two sides in lockstep and reports; `names` says what the report calls them (default: their trees).

    `graft`: where logits differ, run again with one of the legacy's inputs at a time to name the guilty one.
    `band`: what the error of the logits is drawn against.
    `canary_every`: decode steps between two self-tests; one that fails leaves no verdict.
    """
    started = time.monotonic()
    onlookers = Onlookers(pairing, canary_every, watch, review, on_first)
    tally, outcome = compare_sides(
        control,
        candidate,
        timeout=timeout,
        pairing=pairing,
        on_step=on_step,
        watch=onlookers.watch,
        review=onlookers.review,
        stop=onlookers.note,
        strict_hygiene=strict_hygiene,
    )
    outcome = onlookers.canary.judged(outcome)
    facts = (*facts, Fact("threads per side", str(control.threads)), onlookers.canary.fact)
    circumstances = circumstances_of(control, candidate, names, facts, time.monotonic() - started)
    account = onlookers.narrator.account(tally)
    logits = tally.first_of_kind.get(Kind.LOGITS)
    if graft and logits is not None and logits.point is Point.DECODE:
        account += (verdict(blame(control, candidate, logits, timeout=timeout)),)
    return build_report(circumstances, tally, outcome, account, onlookers.pictures(tally, outcome, band))


class Onlookers:
    """Who sees a pair of sides besides the comparison: the account of a divergence, pictures, the self-test."""

    def __init__(
        self,
        pairing: Pairing,
        canary_every: int,
        watch: Watcher,
        review: Reviewer,
        on_first: Callable[[Mismatch], None],
    ) -> None:
        self.narrator, self.album, self.canary = Narrator(), Album(), Canary(canary_every, pairing)
        self._watch, self._review, self._on_first = watch, review, on_first

    def watch(self, ours: Event, theirs: Event) -> None:
        self.narrator.watch(ours, theirs)
        self.album.watch(ours, theirs)
        self.canary.watch(ours, theirs)
        self._watch(ours, theirs)

    def review(self, ours: Event, theirs: Event, comparison: Comparison) -> Comparison:
        return self._review(ours, theirs, self.album.scored(comparison))

    def note(self, tally: Tally) -> bool:
        """Sees what was found so far; never asks for an early end."""
        if tally.first is not None and not self.album.parted:
            self._on_first(tally.first)
        return self.narrator.note(tally) | self.album.note(tally)

    def pictures(self, tally: Tally, outcome: Outcome, band: Band | None) -> tuple[Picture, ...]:
        return self.album.pictures(tally, outcome.done, self.narrator.guilty, band)


def circumstances_of(
    control: Setup,
    candidate: Setup,
    names: tuple[str, str] | None,
    facts: tuple[Fact, ...],
    seconds: float,
) -> Circumstances:
    """What was compared with what; `names` are those of the trees (default: their paths)."""
    same_code = code_digest(Path(control.tree)) == code_digest(Path(candidate.tree))
    legacy, subject = names or (control.tree, candidate.tree)
    return Circumstances(
        legacy=" ".join((legacy, *_differing(control, candidate))),
        candidate=" ".join((subject, *_differing(candidate, control))),
        same_code=same_code and _alike(control, candidate),
        facts=facts,
        seconds=seconds,
    )


def _alike(control: Setup, candidate: Setup) -> bool:
    """Whether nothing but the tree's path may differ between the sides."""
    return replace(control, tree="") == replace(candidate, tree="")


def _differing(setup: Setup, other: Setup) -> list[str]:
    """What is special about one side, in words."""
    said = [
        f"{name}={value}"
        for name, value in setup.environment.items()
        if other.environment != setup.environment
    ]
    said += [f"{name}={value}" for name, value in setup.options.items() if other.options.get(name) != value]
    if setup.mutant is not None:
        said.append(f"mutant {setup.mutant[1]}")
    if setup.order is not None:
        said.append(f"batch order {setup.order}")
    return said


def compare_trees(
    legacy: Path,
    candidate: Path,
    requests: Path,
    options: Mapping[str, object],
    *,
    threads: int,
    timeout: float,
) -> Report:
    """Both trees (folders that hold `batchgen/`) on one request file; `options` are fields of EngineOptions."""
    control, subject = (
        Setup(str(tree), (str(requests),), threads, dict(options)) for tree in (legacy, candidate)
    )
    requests_file = Fact("requests file", str(requests))
    return compare_and_report(control, subject, timeout=timeout, facts=(requests_file,))
