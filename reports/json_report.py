"""JSON: the report model as it is, and back. `SCHEMA` names the version of the shape."""

from __future__ import annotations

import msgspec

from reports.model import Report

SCHEMA = "report/1"


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    schema: str
    report: Report


def to_json(report: Report) -> str:
    """Indented JSON with a final newline; key order is the model's."""
    return msgspec.json.format(msgspec.json.encode(_Envelope(SCHEMA, report)), indent=2).decode() + "\n"


def from_json(text: str | bytes) -> Report:
    """The report that `to_json` wrote. ValueError for anything else, another schema included."""
    try:
        envelope = msgspec.json.decode(text, type=_Envelope)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a report of schema {SCHEMA}: {error}") from error
    if envelope.schema != SCHEMA:
        raise ValueError(f"report schema is {envelope.schema!r}; this version reads {SCHEMA!r}")
    return envelope.report
