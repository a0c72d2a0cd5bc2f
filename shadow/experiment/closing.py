"""The end of a run in compare mode: one line, and one report, for all gates and ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from shadow.experiment.gate import live_gates
from shadow.experiment.ledger import Summary, Verdict, worst
from shadow.experiment.merging import merged

if TYPE_CHECKING:
    from shadow.experiment.agreement import Gather

_REASONS = 4


@dataclass(frozen=True)
class Closing:
    """What the gates found, each on all ranks."""

    summaries: tuple[Summary, ...]
    ranks: int

    @property
    def verdict(self) -> Verdict:
        return worst(summary.verdict for summary in self.summaries)

    @property
    def calls(self) -> int:
        return sum(summary.calls for summary in self.summaries)

    @property
    def compared(self) -> int:
        return sum(summary.compared for summary in self.summaries)

    @property
    def diverged(self) -> int:
        return sum(summary.diverged for summary in self.summaries)

    @property
    def reports(self) -> tuple[str, ...]:
        """The files that were written; of ranks that write elsewhere, the first one's."""
        return tuple(dict.fromkeys(s.report for s in self.summaries if s.report is not None))

    def line(self) -> str:
        ranks = f", {self.ranks} ranks" if self.ranks > 1 else ""
        where = f"; report: {', '.join(self.reports)}" if self.reports else ""
        found = "; ".join(map(_said, self.summaries))
        return f"shadow: verdict {self.verdict.value} ({self.verdict.words}){ranks}: {found}{where}"


def close_all(gather: Gather | None = None) -> Closing | None:
    """Ends all gates that have compared; None where none has.

    Args:
        gather: of all ranks; every rank calls it then. Without it, this rank's findings alone are counted.
    """
    gates = [gate for gate in live_gates() if gate.has_compared]
    if not gates:
        return None
    own, mine = uuid4().hex, [gate.summary() for gate in gates]
    try:
        answers = [(own, mine)] if gather is None else gather((own, mine))
    except Exception:  # a rank is gone: what this one knows is said, and that it is not all
        answers = [(own, [replace(s, faults=s.faults + 1, verdict=Verdict.HARNESS_FAILED) for s in mine])]
    found = []
    for at, gate in enumerate(gates):
        of_ranks = [summaries[at] for _, summaries in answers]
        first = next(
            rank for (rank, _), s in zip(answers, of_ranks, strict=True) if s.report == mine[at].report
        )
        found.append(gate.close(merged(of_ranks), write=first == own))
    return Closing(tuple(found), len(answers))


def _said(summary: Summary) -> str:
    parts = [
        f"{summary.gate}: {summary.compared} of {summary.calls} calls compared, {summary.diverged} diverged"
    ]
    if summary.faults:
        parts.append(f"{summary.faults} harness faults")
    seen, branches = summary.branches
    if branches:
        parts.append(f"branches {seen} of {branches}")
    if summary.unreached:
        never, known = len(summary.unreached), len(summary.unreached) + len(summary.methods)
        parts.append(f"{never} of {known} methods never called")
    if summary.skipped:
        shown = ", ".join(f"{count} {reason}" for reason, count in summary.skipped[:_REASONS])
        more = (
            f", {len(summary.skipped) - _REASONS} further reasons" if len(summary.skipped) > _REASONS else ""
        )
        parts.append(f"not compared: {shown}{more}")
    return ", ".join(parts)
