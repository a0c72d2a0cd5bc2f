"""The report as JSON: schema 1."""

from __future__ import annotations

import json
from typing import Any

from migration.check.model import Check, Finding, Place, Report
from migration.explanations import explanations


def to_json(report: Report, exit_code: int) -> str:
    """Everything in the report; a fix comes with its patch."""
    body = {
        "schema": 1,
        "slice": report.slice,
        "phase": report.phase,
        "found_by": report.found_by,
        "recipe": report.recipe,
        "exit_code": exit_code,
        "headline": report.headline,
        "looked": report.looked,
        "checks": [_check(check) for check in report.checks],
        "findings": [_finding(finding) for finding in report.findings],
        "waived": [
            {
                **_finding(one.finding),
                "reason": one.waiver.reason,
                "expires": one.waiver.expires.isoformat(),
            }
            for one in report.waived
        ],
        "errors": [_finding(error) for error in report.errors],
    }
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def _check(check: Check) -> dict[str, Any]:
    return {
        "code": check.code,
        "rule": check.rule,
        "title": check.title,
        "status": check.status,
        "looked": check.looked,
        "note": check.note,
        "evidence": [_place(place) for place in check.evidence],
        "findings": len(check.findings),
        "waived": len(check.waived),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    mended = finding.fix
    return {
        "code": finding.code,
        "message": finding.message,
        **_place(finding.place),
        "symbol": finding.symbol,
        "why": explanations()[finding.code].why,
        "way_out": finding.way_out,
        "fix": {"title": mended.title, "path": mended.path, "patch": mended.patch} if mended else None,
    }


def _place(place: Place) -> dict[str, Any]:
    return {"path": place.path, "line": place.line}
