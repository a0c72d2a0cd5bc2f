"""A worker that keeps sequences on the device and moves the oldest ones to the host."""

from app.pool import Pool
from app.native import Native


class Worker:
    def __init__(self, device: int, host: int, watermark: int) -> None:
        self.device = Pool(device)
        self.store = Pool(host)
        self.watermark = watermark
        self.order: list[tuple[str, int]] = []
        self.evicted = 0

    # ============ Pages ============

    def admit(self, uuid: str, wanted: int = 1) -> list[int]:
        return Native.for_worker(self).admit(uuid, wanted)

    def _evict(self) -> None:
        return Native.for_worker(self)._evict()

    def _room(self) -> int:
        return Native.for_worker(self)._room()

    # ============ Pools ============

    def _take(self, uuid: str, n: int) -> list[int]:
        return self.device.take(uuid, n)

    def _release(self, uuid: str) -> None:
        self.device.give_back(uuid)

    def _left(self) -> int:
        return len(self.device.free)

    def _take_host(self, uuid: str, n: int) -> list[int]:
        return self.store.take(uuid, n)
