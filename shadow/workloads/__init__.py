"""What the sides are given to do: the validation ladder, a small mixed set, every boundary situation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shadow.workloads.boundaries import boundaries
from shadow.workloads.coverage import Coverage, Engine
from shadow.workloads.ladder import LADDER, ladder
from shadow.workloads.mixed import mixed
from shadow.workloads.requests import Batch, Request, write_batches
from shadow.workloads.workload import FULL, Scale, Workload, WorkloadError, back_to_back

NAMES = (*LADDER, "mixed", "boundaries")


def workload(names: Sequence[str], scale: Scale = FULL, page_size: int = 64, seed: int = 0) -> Workload:
    """The named workloads, back to back. WorkloadError: no such name, or they cannot share a worker.

    `page_size` and `scale` shape the ladder, `seed` its prompts and those of `boundaries`.
    """
    made = []
    for name in names:
        if name in LADDER:
            made.append(ladder(name, scale, page_size, seed))
        elif name in NAMES:
            if scale != FULL:
                raise WorkloadError(f"{name} is small as it is: only {', '.join(LADDER)} can be scaled")
            made.append(mixed() if name == "mixed" else boundaries(seed))
        else:
            raise WorkloadError(f"there is no workload {name!r}; there are {', '.join(NAMES)}")
    whole = back_to_back(made)
    return replace(whole, batches=tuple(_apart(whole.batches)))


def _apart(batches: Sequence[Batch]) -> list[Batch]:
    """The same workload twice is two batches of two names: a label belongs to one sequence of the run."""
    seen: dict[str, int] = {}
    named = []
    for batch in batches:
        times = seen[batch.name] = seen.get(batch.name, 0) + 1
        if times > 1:
            requests = tuple(replace(r, name=f"{r.name}-again{times}") for r in batch.requests)
            batch = Batch(f"{batch.name}-again{times}", requests)
        named.append(batch)
    return named


__all__ = [
    "LADDER",
    "NAMES",
    "Batch",
    "Coverage",
    "Engine",
    "Request",
    "Scale",
    "Workload",
    "WorkloadError",
    "workload",
    "write_batches",
]
