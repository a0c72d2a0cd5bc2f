"""The report as SARIF 2.1.0: what code-scanning pages read. A waived finding is a suppressed result."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from migration.check.model import Check, Finding, Fix, Place, Replacement, Report
from migration.check.rules import RULES
from migration.errors import CATALOGUE
from migration.explanations import explanations

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
#: Codes of `run` itself, which no rule has.
_OWN = {"MG601": "looked-at-nothing", "MG602": "waiver-expired", "MG603": "waiver-unused"}


def to_sarif(report: Report, exit_code: int) -> str:
    names = {**{rule.code: rule.name for rule in RULES}, **_OWN}
    order = sorted(names)
    results = [_result(finding, order) for finding in (*report.errors, *report.findings)]
    for one in report.waived:
        suppression = {
            "kind": "external",
            "status": "accepted",
            "justification": f"{one.waiver.reason} (until {one.waiver.expires.isoformat()})",
        }
        results.append({**_result(one.finding, order), "suppressions": [suppression]})
    results += [_passed(check, order) for check in report.checks if check.status == "passed"]
    run = {
        "tool": {"driver": {"name": "migrate check", "rules": [_rule(code, names[code]) for code in order]}},
        "invocations": [{"executionSuccessful": not report.errors, "exitCode": exit_code}],
        "automationDetails": {"id": f"migrate-check/{report.slice}/{report.phase}"},
        "columnKind": "unicodeCodePoints",
        "properties": {"headline": report.headline, "looked": report.looked},
        "results": results,
    }
    return (
        json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)
        + "\n"
    )


def _rule(code: str, name: str) -> dict[str, Any]:
    explanation = explanations()[code]
    return {
        "id": code,
        "name": "".join(part.capitalize() for part in name.split("-")),
        "shortDescription": {"text": CATALOGUE[code].title},
        "fullDescription": {"text": f"{explanation.what} {explanation.why}"},
        "help": {"text": explanation.past},
        "defaultConfiguration": {"level": "error"},
    }


def _result(finding: Finding, order: list[str]) -> dict[str, Any]:
    identity = f"{finding.code}:{finding.place.path}:{finding.symbol}:{finding.message}"
    body: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": order.index(finding.code),
        "kind": "fail",
        "level": "error",
        "message": {"text": f"{finding.message}. To do: {finding.way_out}."},
        "locations": [_location(finding.place, finding.symbol)],
        # Lines move, findings stay: a page must not open a closed one again.
        "partialFingerprints": {"migrate/v1": hashlib.sha256(identity.encode()).hexdigest()[:32]},
    }
    if finding.fix is not None:
        body["fixes"] = [_fix(finding.fix)]
    return body


def _passed(check: Check, order: list[str]) -> dict[str, Any]:
    return {
        "ruleId": check.code,
        "ruleIndex": order.index(check.code),
        "kind": "pass",
        "level": "none",
        "message": {"text": f"{check.title}: {check.note or check.looked}"},
        "locations": [_location(place, "") for place in check.evidence[:1]],
    }


def _location(place: Place, symbol: str) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": place.path, "uriBaseId": "%SRCROOT%"}}
    if place.line:
        physical["region"] = {"startLine": place.line}
    location: dict[str, Any] = {"physicalLocation": physical}
    if symbol:
        location["logicalLocations"] = [{"fullyQualifiedName": symbol}]
    return location


def _fix(mended: Fix) -> dict[str, Any]:
    return {
        "description": {"text": mended.title},
        "artifactChanges": [
            {
                "artifactLocation": {"uri": mended.path, "uriBaseId": "%SRCROOT%"},
                "replacements": [_replacement(one) for one in mended.replacements],
            }
        ],
    }


def _replacement(one: Replacement) -> dict[str, Any]:
    return {
        "deletedRegion": {
            "startLine": one.line,
            "startColumn": one.column,
            "endLine": one.end_line,
            "endColumn": one.end_column,
        },
        "insertedContent": {"text": one.text},
    }
