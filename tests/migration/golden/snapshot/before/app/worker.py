"""Configuration that is read all over the place, and never written."""

from app.settings import Settings


class Other:
    """Its own `device` is none of the worker's."""

    def move(self):
        self.device = "elsewhere"


class Worker:
    PAGE_LIMIT = 7

    def __init__(self, args: Settings, device: str):
        self.args = args
        if not device:
            device = "cpu"
        self.device = device
        self.tokens = 0
        self.planned = self.plan(1)

    # ============ Planning ============

    def plan(self, count):
        pages = -(-count // self.args.kv.page_size)
        self.tokens += count
        return min(pages, self.PAGE_LIMIT), self.tokens <= self.args.max_tokens, f"{self.device}:{self.args.kv.page_size}"

    def several(self, counts):
        return [self.plan(count) for count in counts if count < self.args.max_tokens], self.left()

    def left(self):
        def inner():
            return self.args.max_tokens - self.tokens

        return inner(), self.args.kv
