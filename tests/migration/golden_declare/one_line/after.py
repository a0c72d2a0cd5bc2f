class Short:
    def __init__(self): "All that there is."; self.items = []; self._last = None

    def last(self): return self._last if self._last is not None else None

    def add(self, item): self.items.append(item); self._last = len(self.items)


def exercise():
    short, shown = Short(), []
    for item in "ab":
        shown.append(short.last())
        short.add(item)
    return [*shown, short.last(), Short.__init__.__doc__, Short().last(), short.items]
