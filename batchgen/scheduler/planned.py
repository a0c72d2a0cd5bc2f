"""Asking a pure planner, with the question kept where somebody wants it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from batchgen.scheduler.ports import SchedCtx
from batchgen.scheduler.trace import Planned

Inputs = TypeVarTuple("Inputs")
Plan = TypeVar("Plan")


def ask(sched: SchedCtx, planner: Callable[[*Inputs], Plan], *inputs: *Inputs) -> Plan:
    """The plan; it and the question go to `sched.planned` if that is set."""
    plan = planner(*inputs)
    if sched.planned is not None:
        sched.planned(Planned(f"{planner.__module__}.{planner.__qualname__}", inputs, plan))
    return plan
