"""Protocols that somebody wrote before: word for word, or in a module of their own."""
from app.parts.cache import CacheManager


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
        return CacheManager.for_worker(self).allocate(uuid, n)

    def swap(self, uuid):
        return CacheManager.for_worker(self).swap(uuid)

    def load(self, uuid, *pages, **options):
        return CacheManager.for_worker(self).load(uuid, *pages, **options)
