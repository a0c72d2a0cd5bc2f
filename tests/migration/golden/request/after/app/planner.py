"""The base of the handler: runs its methods in a world that only notes what they would do. Written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.plans import AllocPlan, AllocRequest

if TYPE_CHECKING:
    from typing import Self

    from app.parts.pages import GpuKvBackend, HostKvBackend, PageRequest


class World:
    """What a request saw, changed as the plan goes on: the two backends and the worker in one."""

    def __init__(self, request: AllocRequest) -> None:
        self.steps: list[tuple[str, str, tuple[str | int, ...]]] = []
        self.device = list(request.device)
        self.lent = {uuid: list(pages) for uuid, pages in request.lent}
        self.host = request.host
        self.order = list(request.order)
        self.watermark = request.watermark
        self.evicted = request.evicted

    def allocate_pages(self, uuid: str, n: int) -> list[int]:
        self.steps.append(("device", "take", (uuid, n)))
        if n > len(self.device):
            raise MemoryError
        pages, self.device = self.device[:n], self.device[n:]
        self.lent[uuid] = pages
        return pages

    def release_pages(self, uuid: str) -> None:
        self.steps.append(("device", "give_back", (uuid,)))
        self.device += self.lent.pop(uuid)

    def free_pages(self) -> int:
        return len(self.device)


class HostWorld:
    def __init__(self, world: World) -> None:
        self.world = world

    def allocate_pages(self, uuid: str, n: int) -> list[int]:
        self.world.steps.append(("store", "take", (uuid, n)))
        if n > self.world.host:
            raise MemoryError
        self.world.host -= n
        return []


class Planner:
    if TYPE_CHECKING:  # the generated class has them

        def __init__(self, *, gpu_kv: GpuKvBackend, host_kv: HostKvBackend) -> None: ...
        def on(self, req: PageRequest) -> Self: ...
        def admit(self, uuid: str, wanted: int = 1) -> list[int]: ...

    def plan_allocation(self, req: AllocRequest) -> AllocPlan:
        """What `admit` would do to a worker that is as the request says."""
        world = World(req)
        pages: list[int] = []
        error = ""
        try:
            pages = self._planning(world).admit(req.uuid, req.wanted)
        except MemoryError:
            _, _, (uuid, n) = world.steps.pop()
            error = f"{n} pages for {uuid}, {len(world.device)} are free"
        return AllocPlan(tuple(world.steps), tuple(pages), tuple(world.order), world.evicted, error)

    def _planning(self, world: World) -> Self:
        """A handler of the same class that acts on nothing."""
        return type(self)(gpu_kv=world, host_kv=HostWorld(world)).on(world)
