"""What the worker works with."""


class DualKVCacheCoordinator:
    def __init__(self, primary, auxiliary):
        self.primary = primary
        self.auxiliary = auxiliary


class NodeStats:
    pass
