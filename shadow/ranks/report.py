"""What a report of several ranks has beside that of one: a row for each rank, and what some rank never saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reports import Report, Status, Table, Verdict
from shadow.observation import Kind
from shadow.ranks.blame import how
from shadow.ranks.merging import unseen
from shadow.ranks.side import End
from shadow.tally import Tally
from shadow.verdict import Exit

_COLUMNS = ("rank", "values", "differ", "forced", "never compared", "legacy side", "candidate side")


def ranks_table(tallies: Sequence[Tally], ends: Sequence[End]) -> Table:
    """`ends`: of both sides of each rank, where the run was stopped; none where all are done."""

    def row(tally: Tally) -> tuple[str, ...]:
        sides = {end.control: how(end) for end in ends if end.rank == tally.rank}
        missing = ", ".join(kind.value for kind in unseen(tally))
        counts = (tally.compared.total(), tally.differences, tally.forced_tokens)
        said = (sides.get(True, "done"), sides.get(False, "done"))
        return (str(tally.rank), *(f"{count:,}" for count in counts), missing or "-", *said)

    return Table("Ranks", _COLUMNS, tuple(row(tally) for tally in tallies))


def with_ranks(report: Report, tallies: Sequence[Tally], ends: Sequence[End]) -> Report:
    """`report` of all ranks together; equal only if no rank is short of a kind that others have seen."""
    headline = report.verdict.headline.replace(" decode steps", f" decode steps on {len(tallies)} ranks", 1)
    equal = report.verdict.exit_code == Exit.EQUAL
    report = replace(
        report,
        tables=(ranks_table(tallies, ends), *report.tables),
        verdict=replace(report.verdict, headline=headline) if equal else report.verdict,
    )
    short: dict[Kind, list[str]] = {}
    for tally in tallies:
        for kind in unseen(tally):
            short.setdefault(kind, []).append(str(tally.rank))
    if report.verdict.exit_code not in (Exit.EQUAL, Exit.COVERAGE) or not short:
        return report
    said = {kind.value: f"{_ranks(ranks)}" for kind, ranks in short.items()}
    names = ", ".join(f"{kind} on {ranks}" for kind, ranks in said.items())
    checks = tuple(
        replace(check, status=Status.SHORT, detail=f"nothing was compared on {said[check.name]}")
        if check.name in said and check.status is Status.PASS
        else check
        for check in report.checks
    )
    headline = f"Coverage short: nothing compared of {names}"
    return replace(report, checks=checks, verdict=Verdict(Status.SHORT, int(Exit.COVERAGE), headline))


def _ranks(numbers: Sequence[str]) -> str:
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {', '.join(numbers)}"
