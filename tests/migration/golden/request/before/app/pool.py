"""A pool that lends pages to sequences."""


class Pool:
    def __init__(self, pages: int) -> None:
        self.free = list(range(pages))
        self.lent: dict[str, list[int]] = {}

    def take(self, uuid: str, n: int) -> list[int]:
        if n > len(self.free):
            raise MemoryError(f"{n} pages for {uuid}, {len(self.free)} are free")
        pages, self.free = self.free[:n], self.free[n:]
        self.lent[uuid] = pages
        return pages

    def give_back(self, uuid: str) -> None:
        self.free += self.lent.pop(uuid)
