"""The report for a terminal: the verdict, each finding with why and what to do, then the checklist."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from migration.check.model import Check, Finding, Report
from migration.explanations import explanations

_MARKS = {"passed": "ok", "failed": "!!", "waived": "~~", "unseen": "!!", "absent": "--"}
_PATCH_LINES = 40


def to_terminal(report: Report, width: int = 110) -> str:
    lines = [f"check {report.headline}"]
    for finding in (*report.errors, *report.findings):
        lines += ["", *_finding(finding, width)]
    for one in report.waived:
        lines += [
            "",
            f"waived until {one.waiver.expires}: {one.finding.place}: {one.finding.code} {one.finding.message}",
        ]
        lines.append(f"  reason: {one.waiver.reason}")
    lines += ["", f"checklist of {report.recipe}"]
    lines += [line for check in report.checks for line in _check(check, width)]
    return "\n".join(lines) + "\n"


def _finding(finding: Finding, width: int) -> Iterator[str]:
    yield f"{finding.place}: {finding.code} {finding.title}: {finding.message}"
    if finding.symbol and finding.symbol not in finding.message:
        yield f"  in       {finding.symbol}"
    yield from _wrapped("why", explanations()[finding.code].why, width)
    yield from _wrapped("to do", finding.way_out, width)
    if finding.fix is not None:
        yield f"  fix      {finding.fix.title}:"
        patch = finding.fix.patch.splitlines()
        yield from (f"    {line}" for line in patch[:_PATCH_LINES])
        if len(patch) > _PATCH_LINES:
            yield f"    ... {len(patch) - _PATCH_LINES} more lines; --format json has all of them"


def _wrapped(heading: str, text: str, width: int) -> list[str]:
    lead = f"  {heading:<8} "
    return textwrap.wrap(
        text, width, initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False
    )


def _check(check: Check, width: int) -> Iterator[str]:
    mark = _MARKS[check.status]
    counts = f", {len(check.findings)} findings" if len(check.findings) > 1 else ""
    yield f"  {mark}  {check.code} {check.title}"
    where = f" ({check.evidence[0]})" if check.evidence and check.status == "passed" else ""
    told = {
        "failed": f"not so{counts}",
        "unseen": check.findings[0].message if check.findings else check.note,
    }
    yield from _wrapped("", f"{told.get(check.status, check.note)}{where}", width)[:2]
