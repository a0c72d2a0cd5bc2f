"""The report as JUnit XML: one test case per line of the checklist."""

from __future__ import annotations

from migration.check.model import Check, Report
from reports import Check as ReportCheck
from reports import Fact, Finding, Level, Status, Verdict, to_junit
from reports import Report as PlainReport

_STATUS = {"passed": Status.PASS, "waived": Status.PASS, "failed": Status.FAIL, "unseen": Status.SHORT}


def to_junit_xml(report: Report, exit_code: int) -> str:
    """A check that is for another phase is no case: CI pages would count it as passed or skipped."""
    judged = [check for check in report.checks if check.status != "absent"]
    cases = tuple(ReportCheck(_name(c), _STATUS[c.status], c.looked, c.note) for c in judged)
    findings = [
        Finding(
            _name(check),
            Level.ERROR,
            finding.message,
            (Fact("place", str(finding.place)), Fact("symbol", finding.symbol)),
            hint=finding.way_out,
        )
        for check in judged
        for finding in check.findings
    ]
    findings += [
        Finding(e.code, Level.ERROR, e.message, (Fact("place", str(e.place)),)) for e in report.errors
    ]
    status = Status.ERROR if report.errors else Status.FAIL if report.findings else Status.PASS
    facts = (Fact("phase", report.phase), Fact("found by", report.found_by), Fact("recipe", report.recipe))
    verdict = Verdict(status, exit_code, report.headline)
    title = f"migrate check {report.slice}"
    return to_junit(PlainReport(title, verdict, facts, cases, tuple(findings), len(findings)))


def _name(check: Check) -> str:
    return f"{check.code} {check.title}"
