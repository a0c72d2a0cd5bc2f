"""Configuration that is read all over the place, and never written."""

from app.settings import Settings
from app.parts.planner import Planner


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
        return Planner.for_worker(self).plan(count)

    def several(self, counts):
        return Planner.for_worker(self).several(counts)

    def left(self):
        return Planner.for_worker(self).left()
