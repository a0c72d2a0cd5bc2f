"""Planners that a record is replayed through, by name; a file of one's own may add more.

A boundary planner is a function of a `Snapshot` that returns decisions (a dataclass or a mapping whose fields
are those recorded). A step planner is a function of `StepInputs` that returns a `StepPlan`.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shadow.record.format import RecordError
from shadow.record.snapshot import Snapshot

BoundaryPlanner = Callable[[Snapshot], Any]


@dataclass(frozen=True, eq=False)
class StepInputs:
    """What is known of decoding sequences before a step: int64 [sequences, steps] each, lengths in tokens.

    `context`: all known tokens, the last of which this step writes. `owned`: pages that the sequence has.
    """

    page_size: int
    context: np.ndarray
    owned: np.ndarray


@dataclass(frozen=True, eq=False)
class StepPlan:
    """How far attention reads, in tokens and in leading pages of those owned: int64 [sequences, steps] each.

    The step writes position `kv_len - 1`, in the last of those pages.
    """

    kv_len: np.ndarray
    pages: np.ndarray


StepPlanner = Callable[[StepInputs], StepPlan]


@dataclass(frozen=True)
class Planners:
    """Those in force, by name."""

    boundary: dict[str, BoundaryPlanner]
    step: dict[str, StepPlanner]


def step_pages(inputs: StepInputs) -> StepPlan:
    """As many pages as the tokens need, the one being written included; no more than are owned."""
    needed = -(-inputs.context // inputs.page_size)
    return StepPlan(inputs.context, np.minimum(needed, inputs.owned))


def load_planners(file: Path) -> Planners:
    """Those of a Python file: its functions named in BOUNDARY_PLANNERS and STEP_PLANNERS, mappings by name.

    RecordError where the file does not run or names none.
    """
    try:
        found = runpy.run_path(str(file))
    except Exception as error:
        raise RecordError(f"{file}: cannot be run: {type(error).__name__}: {error}") from error
    boundary, step = found.get("BOUNDARY_PLANNERS", {}), found.get("STEP_PLANNERS", {})
    named = {**boundary, **step} if isinstance(boundary, dict) and isinstance(step, dict) else {}
    if not named or not all(callable(planner) for planner in named.values()):
        raise RecordError(
            f"{file}: names no planners: give it BOUNDARY_PLANNERS or STEP_PLANNERS, functions by name"
        )
    return Planners(boundary, step)
