"""By which rules a comparison is judged: what its sides differ in by intent, and the noise floor for that."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reports import Band, Report
    from shadow.lockstep import Reviewer
    from shadow.messages import Setup
    from shadow.noise.judging import Judge
    from shadow.pairing import Pairing
    from shadow.witness import Witness

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
    parser.add_argument(
        "--arbitrate",
        action="store_true",
        help="where logits diverge, recompute the first such row in float64 and say which side is further off",
    )


@dataclass(frozen=True)
class Judged:
    """Both setups as the pairing has them, what is compared exactly, and who judges the rest."""

    control: Setup
    candidate: Setup
    pairing: Pairing
    judge: Judge | None
    source: str
    witness: Witness | None

    @property
    def review(self) -> Reviewer:
        from shadow.lockstep import as_found

        return self.witness or self.judge or as_found

    @property
    def band(self) -> Band | None:
        """The noise floor of the logits."""
        from reports import Band

        if self.judge is None:
            return None
        return Band(f"noise floor, {self.pairing.name}", 0.0, self.judge.limit)

    def report(self, report: Report) -> Report:
        """`report` with the bound in use, what it could not have seen, and who is further off."""
        from reports import Fact
        from shadow.noise.report import with_noise

        if self.witness is not None:
            report = replace(report, facts=(*report.facts, Fact("arbiter", self._arbiter(self.witness))))
        if self.judge is not None:
            return with_noise(report, self.judge, self.source)
        fact = Fact("bounds", f"0: bit by bit, no noise floor given; sides differ in: {self.pairing.name}")
        return replace(report, facts=(*report.facts, fact))

    def _arbiter(self, witness: Witness) -> str:
        from batchgen.models import ModelLoadError
        from shadow.witness import hear

        heard = witness.testimony
        if heard is None:
            return "not needed: no row of logits diverged"
        try:
            said = str(hear(heard, self.control, 0.0 if self.judge is None else self.judge.limit))
        except (LookupError, ModelLoadError) as error:
            said = f"could not recompute it: {error}"
        return f"step {heard.step}, sequence {heard.sequence}: {said}"


def judged(arguments: argparse.Namespace, control: Setup, candidate: Setup) -> Judged:
    """NoiseFileError where --noise names a file that cannot be used for this run."""
    from shadow.lockstep import as_found
    from shadow.noise import Class
    from shadow.noise.classes import MEASURABLE, observed, rules, varied
    from shadow.noise.judging import judge_from
    from shadow.pairing import PAIRINGS as EXACT
    from shadow.pairing import SAME
    from shadow.witness import Witness

    pairing, path = Class(arguments.pairing), arguments.noise
    if pairing in MEASURABLE:
        candidate = varied(candidate, pairing)
    if path is None:
        witness = Witness(as_found) if arguments.arbitrate else None
        return Judged(control, candidate, EXACT.get(pairing.value, SAME), None, "", witness)
    judge = judge_from(path, pairing, control)
    control, candidate = (observed(side, pairing) for side in (control, candidate))
    witness = Witness(judge) if arguments.arbitrate else None
    return Judged(control, candidate, rules(pairing), judge, str(path), witness)
