"""What is made on first use, and asked for in many ways."""


class Meter:
    """Counts what goes through it."""

    def __init__(self, limit):
        """Of a meter nothing is known but its limit."""
        self.limit = limit  # of one window
        self.window: list = []

        self.open()

    def open(self):
        self.is_open = True

    def count(self, item):
        if not hasattr(self, "_seen"):  # made on first use
            self._seen = 0
        self._seen += 1
        self.window.append(item)
        if self._seen % self.limit == 0:
            self._flushes = getattr(self, "_flushes", 0) + 1
            self.window.clear()

    def seen(self):
        return self._seen if hasattr(self, "_seen") else 0

    def report(self):
        """How far it is."""
        ready = [hasattr(self, "_seen"), hasattr(
            self, "_seen"
        ) and self._seen >= self.limit]
        return ready, getattr(self, "_flushes", 0)

    def last_error(self):
        return getattr(self, "_error", None) or "none"

    def fail(self, error):
        if getattr(self, "_error", None) is None:
            self._error = error

    def is_fresh(self):
        return hasattr(self, "_seen") == False  # noqa: E712


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
