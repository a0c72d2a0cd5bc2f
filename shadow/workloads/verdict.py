"""What the report says of a workload, and when it makes a pass a "coverage short"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from reports import Check, Fact, Report, Status, Table, Verdict
from shadow.verdict import Exit
from shadow.workloads.realised import AT_LEAST, Yield
from shadow.workloads.situations import SITUATIONS
from shadow.workloads.workload import Workload


def facts(workload: Workload, steps: int | None = None, content_every: int = 1) -> tuple[Fact, ...]:
    """What was run, at what size, and how much of it was looked at."""
    batches = ", then ".join(f"{b.name} ({b.prompts} prompts, cap {b.cap})" for b in workload.batches)
    said = [Fact("workload", batches), Fact("scale", str(workload.scale))]
    if steps is not None:
        said.append(Fact("ends after", f"{steps} decode steps"))
    if content_every > 1:
        said.append(Fact("content", f"KV and logits of each {content_every}th decode step, integers of all"))
    return tuple(said)


def judged(
    report: Report,
    workload: Workload,
    yields: Sequence[Yield],
    counts: Mapping[str, int],
    *,
    cut_short: bool = False,
) -> Report:
    """The report with the workload's checks and tables; its verdict is "short" where it would be a pass.

    `cut_short`: the run was to end after so many steps, so that no cap nor situation is owed.
    """
    owed = not cut_short
    checks = [_caps(workload, yields)] if workload.to_the_cap and owed else []
    if workload.required and owed:
        checks.append(_situations(workload, counts))
    tables = (_realised(yields), *((_coverage(workload, counts),) if workload.required else ()))
    verdict = report.verdict
    short = [check for check in checks if check.status is Status.SHORT]
    if short and verdict.exit_code == Exit.EQUAL:
        said = "; ".join(f"{check.name}: {check.detail}" for check in short)
        verdict = Verdict(Status.SHORT, int(Exit.COVERAGE), f"Coverage short: {said}")
    return replace(
        report, verdict=verdict, checks=(*report.checks, *checks), tables=(*report.tables, *tables)
    )


def _caps(workload: Workload, yields: Sequence[Yield]) -> Check:
    rows = sum(y.rows for y in yields)
    short = [y for y in yields if y.share < AT_LEAST]
    if not short:
        return Check("rows at their cap", Status.PASS, sum(y.full for y in yields), f"of {rows}")
    said = ", ".join(f"{y.full} of {y.rows} rows of {y.batch}" for y in short)
    return Check(
        "rows at their cap",
        Status.SHORT,
        sum(y.full for y in yields),
        f"only {said} reached it, {AT_LEAST:.0%} must: raise the pools or find what ends rows early",
    )


def _situations(workload: Workload, counts: Mapping[str, int]) -> Check:
    missing = [s.name for s in SITUATIONS if s.name in workload.required and not counts.get(s.name)]
    reached = len(workload.required) - len(missing)
    if not missing:
        return Check("boundary situations", Status.PASS, reached)
    return Check(
        "boundary situations",
        Status.SHORT,
        reached,
        f"{len(missing)} of {len(workload.required)} not reached ({', '.join(missing)}): the table of "
        "situations says what reaches them",
    )


def _realised(yields: Sequence[Yield]) -> Table:
    rows = tuple((y.batch, f"{y.tokens:,}", str(y.cap), f"{y.full} of {y.rows}") for y in yields)
    return Table("Realised tokens", ("batch", "tokens", "largest cap", "rows at their cap"), rows)


def _coverage(workload: Workload, counts: Mapping[str, int]) -> Table:
    rows = []
    for situation in SITUATIONS:
        often = counts.get(situation.name, 0)
        if situation.not_here:
            row = (situation.name, "-", "does not apply", situation.not_here)
        elif situation.name in workload.required:
            row = (situation.name, str(often), "yes" if often else "SHORT", situation.means)
            if not often:
                row = (*row[:3], f"{situation.means}; reached by: {situation.reached_by}")
        else:
            row = (situation.name, str(often), "no", situation.means)
        rows.append(row)
    return Table("Boundary situations", ("situation", "how often", "required", "what it is"), tuple(rows))
