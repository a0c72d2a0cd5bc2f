"""A pool behind the Protocol of the device."""


class PoolBackend:
    def __init__(self, wrapped):
        self._wrapped = wrapped

    @property
    def closed(self):
        return self._wrapped().closed

    @closed.setter
    def closed(self, value):
        self._wrapped().closed = value

    def allocate_pages(self, uuid, n, *, handle=None):
        return self._wrapped().allocate(uuid, n, handle=handle)

    def release_pages(self, uuid):
        self._wrapped().release_pages(uuid)

    def free_pages(self):
        return self._wrapped().left()
