"""What stands between a handler and a worker."""


class Ranks:
    def __init__(self, worker):
        self._worker = worker

    @property
    def available(self):
        return hasattr(self._worker(), "ranks")
