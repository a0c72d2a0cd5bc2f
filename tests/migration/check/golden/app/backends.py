"""What stands in front of handles."""


class Ranks:
    def __init__(self, read):
        self._read = read

    @property
    def available(self):
        return hasattr(self._read(), "parallel_manager")

    def shard(self, model):
        return self._read().parallel_manager.shard(model)
