"""Which planners a record is to be replayed through."""

from __future__ import annotations

from pathlib import Path

from shadow.record.format import RecordError
from shadow.record.planners import load_planners, step_pages
from shadow.record.policy_recorder import POLICY
from shadow.record.reader import Record
from shadow.record.replay import Replay
from shadow.record.replay_boundary import BoundaryReplay
from shadow.record.replay_policy import PolicyReplay
from shadow.record.replay_step import StepReplay
from shadow.record.source_tree import Importer, TreePlanner, import_from


def replays_of(
    record: Record,
    tree: Path | None = None,
    planners: Path | None = None,
    importer: Importer = import_from,
) -> tuple[dict[str, Replay], dict[str, str]]:
    """The step planner, the boundary planner of `tree`, those of the file `planners`; and where each is from.

    RecordError where one cannot be had, or where the record does not say how large a page is.
    """
    if record.settings.get("policy") == POLICY:
        return _policy_replays(record, tree, planners, importer)
    page_size = record.settings.get("page_size")
    if not isinstance(page_size, int) or page_size < 1:
        raise RecordError(
            f"{record.path}: says no page size: its worker has no args.page_size to replay with"
        )
    replays: dict[str, Replay] = {"step": StepReplay(step_pages, page_size)}
    sources = {"step": "shadow"}
    if tree is not None:
        header = record.header
        planner = TreePlanner(tree, record.settings, header.world_size, header.gpus_per_node, importer)
        replays["boundary"], sources["boundary"] = BoundaryReplay(planner, planner.types), str(tree)
    if planners is not None:
        own = load_planners(planners)
        replays |= {name: BoundaryReplay(function, {}) for name, function in own.boundary.items()}
        replays |= {name: StepReplay(function, page_size) for name, function in own.step.items()}
        sources |= dict.fromkeys((*own.boundary, *own.step), str(planners))
    return replays, sources


def _policy_replays(
    record: Record, tree: Path | None, planners: Path | None, importer: Importer
) -> tuple[dict[str, Replay], dict[str, str]]:
    """Of a run of the step policy, which has no boundaries: all planners that were asked, by their names in `tree`."""
    if tree is None or planners is not None:
        raise RecordError(
            f"{record.path}: is a run of the step policy: give --tree, the tree whose planners are to be asked again, "
            "and no --planners"
        )
    return {"policy": PolicyReplay(tree, importer)}, {"policy": str(tree)}
