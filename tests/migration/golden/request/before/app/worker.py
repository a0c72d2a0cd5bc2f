"""A worker that keeps sequences on the device and moves the oldest ones to the host."""

from app.pool import Pool


class Worker:
    def __init__(self, device: int, host: int, watermark: int) -> None:
        self.device = Pool(device)
        self.store = Pool(host)
        self.watermark = watermark
        self.order: list[tuple[str, int]] = []
        self.evicted = 0

    # ============ Pages ============

    def admit(self, uuid: str, wanted: int = 1) -> list[int]:
        """Device pages for a sequence; the oldest ones make room for it."""
        while self.order and self._room() < wanted:
            self._evict()
        pages = self._take(uuid, wanted)
        self.order.append((uuid, wanted))
        return pages

    def _evict(self) -> None:
        oldest, size = self.order.pop(0)
        self._take_host(oldest, size)
        self._release(oldest)
        self.evicted += 1  # only ever counts up

    def _room(self) -> int:
        return self._left() - self.watermark

    # ============ Pools ============

    def _take(self, uuid: str, n: int) -> list[int]:
        return self.device.take(uuid, n)

    def _release(self, uuid: str) -> None:
        self.device.give_back(uuid)

    def _left(self) -> int:
        return len(self.device.free)

    def _take_host(self, uuid: str, n: int) -> list[int]:
        return self.store.take(uuid, n)
