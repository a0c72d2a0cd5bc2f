"""The status as JSON. Described in docs/status.md."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from migration.status.evidence import Evidence
from migration.status.phase import Phase, Standing
from migration.status.since import Since
from migration.status.survey import SliceStatus, TreeStatus

_NAMES = {Phase.PORTED: "port", Phase.GATED: "gate", Phase.CLEANED: "cleanup"}


def status_json(status: TreeStatus) -> dict[str, Any]:
    """Ready for `json.dumps`."""
    git = {"known": not status.git_fault, "why": status.git_fault}
    return {"schema": 1, "git": git, "slices": [_slice(one, bool(status.git_fault)) for one in status.slices]}


def _slice(one: SliceStatus, no_git: bool) -> dict[str, Any]:
    recipe, stands = one.recipe, one.standing
    body: dict[str, Any] = {
        "slice": one.name,
        "file": recipe and recipe.source_file,
        "class": recipe and recipe.source_class,
        "handler": recipe and recipe.target_file,
        "handler_class": recipe and recipe.handler_class,
        "seen": one.seen,
    }
    if isinstance(stands, Standing):
        brought = dict(one.brought)
        body |= {
            "phase": stands.phase.name.lower(),
            "words": stands.words,
            "note": stands.note,
            "methods": {"done": stands.done, "of": stands.wanted},
            "lines_left": stands.left,
            "phases": {
                name: {
                    "reached": _reached(phase, stands, brought, no_git),
                    **_since(brought.get(phase), no_git),
                }
                for phase, name in _NAMES.items()
            },
        }
    else:
        body |= {"phase": None, "why": stands.why}
    return body | {
        "proof": asdict(one.proof) if one.proof else None,
        "flags": [{"name": flag.name, **_since(flag.since, no_git)} for flag in one.flags],
        "shadow": [_run(run) for run in one.evidence],
    }


def _reached(phase: Phase, stands: Standing, brought: dict[Phase, Since], no_git: bool) -> bool | None:
    """Gates that a cleanup took away are in the past, and a one-step cut had none: only git can tell."""
    if phase is Phase.GATED and stands.phase is Phase.CLEANED:
        return None if no_git else phase in brought
    return phase <= stands.phase


def _since(found: Since | None, no_git: bool) -> dict[str, Any]:
    """`committed` is None where git does not tell."""
    if found is None:
        return {"committed": None if no_git else False, "commit": None, "date": None, "age_days": None}
    date = datetime.fromtimestamp(found.time, UTC).isoformat()
    return {"committed": True, "commit": found.commit, "date": date, "age_days": found.days}


def _run(run: Evidence) -> dict[str, Any]:
    return {
        "path": run.path,
        "kind": run.kind,
        "gate": run.gate or None,
        "verdict": run.verdict,
        "headline": run.headline,
        "compared": dict(run.compared),
        "compared_total": run.total,
        "of_this_file": run.current,
    }
