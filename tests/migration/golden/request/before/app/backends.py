"""The pools as the handler speaks of them."""

from collections.abc import Callable

from app.pool import Pool


class HostPages:
    def __init__(self, pool: Callable[[], Pool]) -> None:
        self.pool = pool

    def allocate_pages(self, uuid: str, n: int) -> list[int]:
        return self.pool().take(uuid, n)


class DevicePages(HostPages):
    def release_pages(self, uuid: str) -> None:
        self.pool().give_back(uuid)

    def free_pages(self) -> int:
        return len(self.pool().free)
