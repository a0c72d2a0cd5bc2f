from app.worker import Worker


class Pooled(Worker):
    def drain(self, *, all=False):
        self.pages = [] if all else self.pages[1:]


class Evicting(Pooled):
    def _evict(self, page):
        self.pages = [number for number in self.pages if number != page]

    def drain(self, *, all=False):
        self._evict(1)
