"""A slice that brings its adapter and its fakes; a trace types what the class leaves open."""

from app.pool import Pool


def made(names):
    return list(names)


class Worker:
    def __init__(self):
        self.pool = Pool()
        self.names = made(())
        self.log = made(())

    # ============ Cache ============

    def allocate(self, uuid, n):
        pages = self.pool.allocate(uuid, n)
        self.names.append(uuid)
        return pages, self.pool.left(), self.note(len(pages), uuid)

    def reset(self):
        self.pool = Pool()
        self.pool.closed = not self.pool.closed
        return self.pool.left(), self.pool.closed

    # ============ Rest ============

    def note(self, count, *names, **more):
        self.log.append((count, names, more))
        return len(self.log)
