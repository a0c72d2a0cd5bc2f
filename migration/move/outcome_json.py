"""The outcome of a cut as plain values."""

from __future__ import annotations

import dataclasses
from typing import Any

from migration.ledger.patch import patch
from migration.move.cut import CutClean, CutOutcome, CutPlan


def outcome_json(outcome: CutOutcome, *, written: bool) -> dict[str, Any]:
    """A plan carries its patch instead of whole files."""
    common = {"schema": 1, "slice": outcome.recipe.name}
    if isinstance(outcome, CutClean):
        return common | {"outcome": "clean", "methods": outcome.methods}
    if isinstance(outcome, CutPlan):
        return common | {
            "outcome": "written" if written else "planned",
            "methods": outcome.methods,
            "handles": [
                {
                    "name": h.spec.name,
                    "protocol": h.spec.protocol,
                    "members": [dataclasses.asdict(m) for m in h.members],
                }
                for h in outcome.handles
            ],
            "renames": outcome.proof.renames,
            "proof": dataclasses.asdict(outcome.proof),
            "notes": outcome.notes,
            "files": [change.path for change in outcome.changes],
            "diff": patch(outcome.changes).decode("utf-8"),
        }
    refusals = [dataclasses.asdict(refusal) | {"way_out": refusal.way_out} for refusal in outcome.refusals]
    return common | {"outcome": "refused", "refusals": refusals}
