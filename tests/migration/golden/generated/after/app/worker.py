"""A slice that brings its adapter and its fakes; a trace types what the class leaves open."""

from app.pool import Pool
from app.parts.cache import CacheManager


def made(names):
    return list(names)


class Worker:
    def __init__(self):
        self.pool = Pool()
        self.names = made(())
        self.log = made(())

    # ============ Cache ============

    def allocate(self, uuid, n):
        return CacheManager.for_worker(self).allocate(uuid, n)

    def reset(self):
        return CacheManager.for_worker(self).reset()

    # ============ Rest ============

    def note(self, count, *names, **more):
        self.log.append((count, names, more))
        return len(self.log)
