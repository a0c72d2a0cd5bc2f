"""The inventory as JSON. docs/inventory.md describes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from migration.presence.findings import HasattrFinding
from migration.survey.reports import Inventory

#: Raised when a field changes its meaning or goes away; new fields do not raise it.
SCHEMA = 1


def inventory_json(
    found: Inventory,
    findings: Sequence[HasattrFinding] | None = None,
    commands: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Ready for `json.dumps`; `findings` is what the hasattr prover says, None where it was not asked, and
    `commands` what declares an attribute."""
    value = {"schema": SCHEMA, **dataclasses.asdict(found)}
    value["class"] = value.pop("class_name")
    if findings is not None:
        known = commands or {}
        value["hasattr"] = [
            dataclasses.asdict(finding) | {"declare": known.get(finding.attribute or "")}
            for finding in findings
        ]
    return value
