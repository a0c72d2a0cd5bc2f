class Short:
    def __init__(self): "All that there is."; self.items = []

    def last(self): return self._last if hasattr(self, "_last") else None

    def add(self, item): self.items.append(item); self._last = len(self.items)


def exercise():
    short, shown = Short(), []
    for item in "ab":
        shown.append(short.last())
        short.add(item)
    return [*shown, short.last(), Short.__init__.__doc__, Short().last(), short.items]
