"""The history as JSON: every commit, oldest first. Described in docs/status.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from migration.burndown.history import History
from migration.burndown.rows import Row
from migration.burndown.subject import Subject


def burndown_json(subject: Subject, history: History, rows: Sequence[Row]) -> dict[str, Any]:
    """Ready for `json.dumps`."""
    return {
        "schema": 1,
        "file": subject.file,
        "class": subject.class_name,
        "handlers": subject.handlers,
        "renamed": [{"file": path, "from": old} for path, old in history.renamed],
        "shallow": history.shallow,
        "commits": len(rows),
        "not_parsed": sum(not row.whole for row in rows),
        "rows": [
            {
                "commit": row.commit.id,
                "date": datetime.fromtimestamp(row.commit.time, UTC).isoformat(),
                "subject": row.commit.subject,
                "monolith": asdict(row.monolith) if row.monolith else None,
                "handler_lines": row.handler_lines,
                "protocols": row.protocols,
                "protocol_width": row.width,
                "faults": row.faults,
            }
            for row in rows
        ],
    }
