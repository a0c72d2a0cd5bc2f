class Worker:
    def __init__(self, config):
        self.config = config

    def load(self, names):
        for name in names:
            setattr(self, name, self.config[name])

    def reset(self):
        self.cleared = None
        self.half = []

    def use(self, other):
        if hasattr(self, "cleared"):
            other.note(self.cleared)
        if not hasattr(self, "half"):
            self.half = [1]
        return getattr(self, "half", [])

    def ask(self):
        return getattr(self, "mode", "fast"), hasattr(self, "nothing")

    def set(self):
        self.mode = "slow"
        self.kept = 1
        return hasattr(self, "kept")
