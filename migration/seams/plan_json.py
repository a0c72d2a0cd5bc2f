"""The plan as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from migration.errors import Refusal
from migration.seams.mikado import steps
from migration.seams.plan import ClassPlan
from migration.seams.splitting import Splitting
from migration.seams.trial import Trial
from migration.seams.write import planned_text

SCHEMA = 1


def plan_json(plan: ClassPlan) -> dict[str, Any]:
    """Everything that the tables say, and the recipe of each slice as TOML, ready for `json.dumps`."""
    graph = plan.graph
    return {
        "schema": SCHEMA,
        "path": graph.source.path,
        "class": graph.shape.name,
        "import_root": graph.import_root,
        "budget": plan.wanted.budget,
        "methods": len(graph.nodes),
        "lines": graph.lines(graph.nodes),
        "slices": [_slice(plan, trial) for trial in plan.trials],
        "order": [plan.trials[index].candidate.name for index in plan.order],
        "splits": [_split(found) for found in plan.splits.values()],
        "steps": [dataclasses.asdict(step) for step in steps(plan)],
    }


def _slice(plan: ClassPlan, trial: Trial) -> dict[str, Any]:
    cut, recipe = trial.candidate.cluster, trial.recipe
    handles = trial.plan.handles if trial.plan else ()
    return {
        "name": trial.candidate.name,
        "origin": trial.candidate.origin,
        "methods": [{"name": name, "lines": plan.graph.nodes[name].lines} for name in cut.names],
        "lines": cut.lines,
        "over_budget": trial.candidate.over_budget,
        "score": round(cut.score, 4),
        "predicted_members": sorted(trial.candidate.members),
        "members": sorted(trial.members),
        "written": list(trial.written),
        "handles": [
            {
                "name": handle.spec.name,
                "protocol": handle.spec.protocol,
                "members": [member.name for member in handle.members],
                "whole": list(handle.whole),
            }
            for handle in handles
        ],
        "calls_out": [list(pair) for pair in cut.calls_out],
        "calls_in": [list(pair) for pair in cut.calls_in],
        "named_in": {name: list(plan.named_in[name]) for name in cut.names if name in plan.named_in},
        "stubs_needed": list(plan.stubs_needed(trial)),
        "verdict": trial.verdict,
        "stays": {name: _refusals(found) for name, found in trial.refused.items()},
        "blocking": _refusals(trial.blocking),
        "late_bound": list(recipe.late_bound),
        "lazy": list(trial.lazy),
        "diff": [dataclasses.asdict(file) for file in trial.diff],
        "recipe": planned_text(plan, trial),
    }


def _split(found: Splitting) -> dict[str, Any]:
    return {
        "method": found.method,
        "lines": found.lines,
        "command": found.command,
        "pieces": found.pieces,
        "refusals": _refusals(found.refusals),
    }


def _refusals(found: Iterable[Refusal]) -> list[dict[str, Any]]:
    return [{**dataclasses.asdict(refusal), "way_out": refusal.way_out} for refusal in found]
