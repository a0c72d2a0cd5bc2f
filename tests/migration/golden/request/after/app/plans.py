"""What a request is made of, what comes back, and how it is applied. Written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.pool import Pool

if TYPE_CHECKING:
    from app.worker import Worker


@dataclass(frozen=True)
class AllocRequest:
    """A picture of the worker, frozen all the way down, and what is asked."""

    uuid: str
    wanted: int
    device: tuple[int, ...]
    lent: tuple[tuple[str, tuple[int, ...]], ...]
    host: int
    order: tuple[tuple[str, int], ...]
    watermark: int
    evicted: int


@dataclass(frozen=True)
class AllocPlan:
    """`steps` are (pool, method, arguments) in order; the rest is what the worker has afterwards.

    Where the request cannot be met, `error` says why, and the steps are what was done before.
    """

    steps: tuple[tuple[str, str, tuple[str | int, ...]], ...]
    pages: tuple[int, ...]
    order: tuple[tuple[str, int], ...]
    evicted: int
    error: str = ""


def picture(worker: Worker, uuid: str, wanted: int) -> AllocRequest:
    lent = tuple((name, tuple(pages)) for name, pages in worker.device.lent.items())
    device, host = tuple(worker.device.free), len(worker.store.free)
    return AllocRequest(
        uuid, wanted, device, lent, host, tuple(worker.order), worker.watermark, worker.evicted
    )


def apply(worker: Worker, plan: AllocPlan) -> list[int]:
    """Do to the worker what the plan says."""
    pools: dict[str, Pool] = {"device": worker.device, "store": worker.store}
    for pool, method, arguments in plan.steps:
        getattr(pools[pool], method)(*arguments)
    worker.order[:] = plan.order
    worker.evicted = plan.evicted
    if plan.error:
        raise MemoryError(plan.error)
    return list(plan.pages)
