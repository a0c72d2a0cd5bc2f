"""The methods of the worker by way of a plan: picture, decide, apply. Written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.parts.pages import PageKeeper
from app.plans import apply, picture

if TYPE_CHECKING:
    from app.worker import Worker


class Native:
    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.keeper = PageKeeper.for_worker(worker)

    @classmethod
    def for_worker(cls, worker: Worker) -> Native:
        return cls(worker)

    def admit(self, uuid: str, wanted: int = 1) -> list[int]:
        plan = self.keeper.plan_allocation(picture(self.worker, uuid, wanted))
        return apply(self.worker, plan)

    def _evict(self) -> None:
        self.keeper._evict()

    def _room(self) -> int:
        return self.keeper._room()
