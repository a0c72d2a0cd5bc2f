"""JUnit XML: one test case per check, so that a CI page lists what was compared and what failed."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from reports.model import Check, Finding, Report, Status

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _clean(text: str) -> str:
    return _NOT_XML.sub("�", text)


def _describe(finding: Finding, sides: tuple[str, str]) -> str:
    lines = [finding.message, *(f"{fact.name}: {fact.value}" for fact in finding.where)]
    if finding.expected is not None or finding.actual is not None:
        lines += [f"{sides[0]}: {finding.expected}", f"{sides[1]}: {finding.actual}"]
    if finding.hint:
        lines.append(finding.hint)
    return "\n".join(lines)


def _case(suite: ET.Element, name: str, count: int) -> ET.Element:
    return ET.SubElement(
        suite, "testcase", name=_clean(name), classname=suite.attrib["name"], assertions=str(count)
    )


def _outcome(case: ET.Element, check: Check, report: Report) -> None:
    if check.status is Status.PASS:
        return
    # A check that saw too little is an error, not a "skipped": CI pages count skips as green.
    tag = "failure" if check.status is Status.FAIL else "error"
    element = ET.SubElement(case, tag, message=_clean(check.detail), type=check.status.value)
    element.text = _clean(
        "\n\n".join(_describe(f, report.sides) for f in report.findings if f.code == check.name)
    )


def to_junit(report: Report) -> str:
    """A `testsuites` document. The verdict is a case of its own, so an error without any check is red too."""
    verdict = Check("verdict", report.verdict.status, len(report.checks), report.verdict.headline)
    cases = [*report.checks, verdict]
    totals = {
        "tests": str(len(cases)),
        "failures": str(sum(c.status is Status.FAIL for c in cases)),
        "errors": str(sum(c.status in (Status.ERROR, Status.SHORT) for c in cases)),
        "time": f"{report.seconds:.3f}",
    }
    root = ET.Element("testsuites", totals)
    suite = ET.SubElement(root, "testsuite", {"name": _clean(report.title), **totals})
    properties = ET.SubElement(suite, "properties")
    for fact in report.facts:
        ET.SubElement(properties, "property", name=_clean(fact.name), value=_clean(fact.value))
    for check in cases:
        _outcome(_case(suite, check.name, check.count), check, report)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
