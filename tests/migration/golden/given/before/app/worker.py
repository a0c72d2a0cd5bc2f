"""Protocols that somebody wrote before: word for word, or in a module of their own."""


class AsyncHandle:
    pass


class Pool:
    def __init__(self):
        self.taken = {}
        self.closed = False

    def allocate(self, uuid, n, handle=None):
        self.taken[uuid] = list(range(n))
        return self.taken[uuid]

    def release_pages(self, uuid):
        del self.taken[uuid]

    def left(self):
        return 8 - sum(map(len, self.taken.values()))


class Host:
    def __init__(self):
        self.pages = []

    def load(self, uuid, *page_ids, **options):
        self.pages += page_ids
        return f"{uuid} {len(self.pages)} {sorted(options)}"


class Worker:
    def __init__(self):
        self.pool = Pool()
        self.host = Host()
        self.name = "w"

    # ============ Cache ============

    def allocate(self, uuid, n):
        pages = self.pool.allocate(uuid, n, handle=AsyncHandle())
        return pages, self.pool.left()

    def swap(self, uuid):
        self.pool.release_pages(uuid)
        self.pool = Pool()
        self.pool.closed = not self.pool.closed
        return self.pool.left(), self.pool.closed, hasattr(self.pool, "closed")

    def load(self, uuid, *pages, **options):
        first = self.host.load(uuid, 1, 2)
        return first, self.host.load(uuid, *pages, **options), self.host.pages, self.name
