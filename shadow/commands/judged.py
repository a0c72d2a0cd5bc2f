"""By which rules a comparison is judged: what its sides differ in by intent, and the noise floor for that."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reports import Report
    from shadow.lockstep import Reviewer
    from shadow.messages import Setup
    from shadow.noise.judging import Judge
    from shadow.pairing import Pairing

PAIRINGS = ("same", "batch-order", "bucket", "threads", "dtype", "split", "backend")


def add_noise_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pairing",
        choices=PAIRINGS,
        default="same",
        help="what the candidate differs in besides its tree; it is run so, but for split and backend, which the "
        "trees themselves must differ in (default: same)",
    )
    parser.add_argument(
        "--noise",
        type=Path,
        metavar="FILE",
        help="judge numbers by the bounds that `shadow noise` measured for that (default: bit by bit)",
    )


@dataclass(frozen=True)
class Judged:
    """Both setups as the pairing has them, what is compared exactly, and who judges the rest."""

    control: Setup
    candidate: Setup
    pairing: Pairing
    judge: Judge | None
    source: str

    @property
    def review(self) -> Reviewer:
        from shadow.lockstep import as_found

        return self.judge or as_found

    def report(self, report: Report) -> Report:
        """`report` with the bound in use and what it could not have seen."""
        from reports import Fact
        from shadow.noise.report import with_noise

        if self.judge is not None:
            return with_noise(report, self.judge, self.source)
        fact = Fact("bounds", f"0: bit by bit, no noise floor given; sides differ in: {self.pairing.name}")
        return replace(report, facts=(*report.facts, fact))


def judged(arguments: argparse.Namespace, control: Setup, candidate: Setup) -> Judged:
    """NoiseFileError where --noise names a file that cannot be used for this run."""
    from shadow.noise import Class, NoiseFileError, load
    from shadow.noise.classes import MEASURABLE, observed, rules, varied
    from shadow.noise.conditions import conditions_of
    from shadow.noise.judging import Judge
    from shadow.noise.store import check_conditions
    from shadow.pairing import PAIRINGS as EXACT
    from shadow.pairing import SAME

    pairing, path = Class(arguments.pairing), arguments.noise
    if pairing in MEASURABLE:
        candidate = varied(candidate, pairing)
    if path is None:
        return Judged(control, candidate, EXACT.get(pairing.value, SAME), None, "")
    floor = load(path)
    check_conditions(path, floor, conditions_of(control))
    if pairing not in floor.classes:
        measured = ", ".join(floor.classes)
        raise NoiseFileError(
            f"{path} has no bounds for sides that differ in {pairing.value}, only {measured}"
        )
    control, candidate = (observed(side, pairing) for side in (control, candidate))
    return Judged(control, candidate, rules(pairing), Judge(floor, pairing), str(path))
