"""JSON: the report model as it is, and back. `SCHEMA` names the version of the shape.

The shape itself is published as docs/report.schema.json: see reports.schema.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from reports.model import Report
from reports.text import encodable

SCHEMA: Literal["report/1"] = "report/1"


class Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """What a file holds: the report, and the version of its shape."""

    schema: Literal["report/1"]
    report: Report


def _plain(value: Any) -> Any:
    """Half a surrogate pair is legal in a JSON request and in Python, but has no bytes in a file."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return {name: _plain(item) for name, item in value.items()} if isinstance(value, dict) else value


def to_json(report: Report) -> str:
    """Indented JSON with a final newline; key order is the model's."""
    plain = _plain(msgspec.to_builtins(Envelope(SCHEMA, report)))
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


def from_json(text: str | bytes) -> Report:
    """The report that `to_json` wrote. ValueError for anything else, another schema included."""
    try:
        envelope = msgspec.json.decode(text, type=Envelope)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a report of schema {SCHEMA}: {error}") from error
    return envelope.report
