"""The published shape of the JSON report: `python -m reports.schema > docs/report.schema.json`."""

from __future__ import annotations

from typing import Any

import msgspec

from reports.json_report import SCHEMA, Envelope


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of what `to_json` writes."""
    _, components = msgspec.json.schema_components([Envelope], ref_template="#/$defs/{name}")
    envelope = components.pop("Envelope")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A report of migrate or shadow, {SCHEMA}",
        **{name: value for name, value in envelope.items() if name != "title"},
        "$defs": dict(sorted(components.items())),
    }


def published() -> str:
    """The text of docs/report.schema.json."""
    return msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    print(published(), end="")
