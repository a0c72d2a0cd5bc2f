"""What is made on first use, and asked for in many ways."""


class Meter:
    """Counts what goes through it."""

    def __init__(self, limit):
        """Of a meter nothing is known but its limit."""
        self.limit = limit  # of one window
        self.window: list = []
        self._seen = None
        self._flushes = 0
        self._error = None

        self.open()

    def open(self):
        self.is_open = True

    def count(self, item):
        if self._seen is None:  # made on first use
            self._seen = 0
        self._seen += 1
        self.window.append(item)
        if self._seen % self.limit == 0:
            self._flushes = self._flushes + 1
            self.window.clear()

    def seen(self):
        return self._seen if self._seen is not None else 0

    def report(self):
        """How far it is."""
        ready = [self._seen is not None, self._seen is not None and self._seen >= self.limit]
        return ready, self._flushes

    def last_error(self):
        return self._error or "none"

    def fail(self, error):
        if self._error is None:
            self._error = error

    def is_fresh(self):
        return (self._seen is not None) == False  # noqa: E712


def exercise():
    shown = []
    for limit in (1, 2, 3):
        meter, other = Meter(limit), Meter(limit)
        for step in range(4):
            shown.append((meter.seen(), meter.report(), meter.last_error(), meter.is_fresh()))
            meter.count(step)
            if step == 2:
                meter.fail("late")
                meter.fail("later")
        other.fail("early")
        shown.append((other.report(), other.last_error(), other.is_fresh(), meter.window))
    return shown
