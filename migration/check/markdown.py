"""The pre-merge checklist of the pull request: ticked by evidence, each line with a link to it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from migration.check.model import Check, Finding, Place, Report

_SPECIAL = re.compile(r"[\\*\[\]<>|]")
_BOXES = {"passed": "x", "failed": " ", "waived": "x", "unseen": " ", "absent": " "}
_LINKS = 3


def to_markdown(report: Report) -> str:
    """Items of the recipe first, in their own words; rules that always apply below them."""
    lines = [f"## Pre-merge checklist: {_text(report.headline)}", ""]
    if report.errors:
        lines += ["**The checklist itself is wrong.**", ""]
        lines += [f"- {_link(error.place)}: {_text(error.message)}" for error in report.errors] + [""]
    own = [check for check in report.checks if check.line and check.status != "absent"]
    always = [check for check in report.checks if not check.line and check.status != "absent"]
    absent = [check for check in report.checks if check.status == "absent"]
    for title, checks in (("The slice's own", own), ("Every slice's", always)):
        if checks:
            lines += [f"### {title}", "", *(line for group in _groups(checks) for line in _group(group)), ""]
    if absent:
        lines += ["### Not for this phase, or nothing of the kind", ""]
        lines += [f"- {check.code} {_text(check.title)}: {_text(check.note)}" for check in absent] + [""]
    return "\n".join(lines)


def _groups(checks: list[Check]) -> list[list[Check]]:
    """Checks that stand for one line of the checklist: they have its words."""
    found: dict[str, list[Check]] = {}
    for check in checks:
        found.setdefault(check.title, []).append(check)
    return list(found.values())


def _group(checks: list[Check]) -> Iterator[str]:
    """Ticked where every check of the line holds."""
    box = "x" if all(_BOXES[check.status] == "x" for check in checks) else " "
    yield f"- [{box}] {_text(checks[0].title)}"
    for check in checks:
        if check.status == "passed":
            yield f"  - {check.code}: {_text(check.note or f'{check.looked} places')}{_links(check.evidence)}"
        for finding in check.findings:
            yield f"  - **{finding.code}** {_link(finding.place)}: {_text(finding.message)}{_mended(finding)}"
        for one in check.waived:
            until = f"waived until {one.waiver.expires.isoformat()}: {_text(one.waiver.reason)}"
            yield f"  - {one.finding.code} {_link(one.finding.place)}: {until}"


def _mended(finding: Finding) -> str:
    return f" (fix: {_text(finding.fix.title)})" if finding.fix else ""


def _links(evidence: tuple[Place, ...]) -> str:
    shown = ", ".join(_link(place) for place in evidence[:_LINKS])
    return f" ({shown})" if shown else ""


def _link(place: Place) -> str:
    anchor = f"#L{place.line}" if place.line else ""
    target = f"{place.path}{anchor}".replace(" ", "%20").replace(")", "%29")
    return f"[{_text(str(place))}]({target})"


def _text(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", " ".join(text.split()))
