"""A worker whose seams are known: three concerns that share little, and some habits of real ones."""

from __future__ import annotations

from migration.code.tree import Tree
from migration.seams.graph import ClassGraph, class_graph
from migration.seams.plan import ClassPlan, Wanted, candidates, try_all

from .support import tree_of

PATH = "app/worker.py"
WORKER = """
import json

from app.pool import Pool

class Base:
    def log(self, text): ...

class Worker(Base):
    LIMIT = 8

    def __init__(self, args, names):
        self.args = args
        self.names = names
        self.pool = Pool(args)
        self.pages = {}
        self.done = 0
        self.sampled = 0
        self.queue = []
        self.rank = 0

    # ============ Pages ============

    def take_pages(self, uuid, count):
        # Pages of one sequence.
        if not hasattr(self, "high_water"):
            self.high_water = 0
        found = self.pool.take(count)
        self.pages[uuid] = found
        self.high_water = max(self.high_water, self.count_pages())
        return found

    def give_pages(self, uuid):
        for page in self.pages.pop(uuid, ()):
            self.pool.give(page)
        return self.count_pages()

    def count_pages(self):
        total = 0
        for pages in self.pages.values():
            total += len(pages)
        return total

    # ============ Sampling ============

    def sample_tokens(self, logits):
        scaled = self.sample_scaled(logits)
        self.sampled += 1
        best = max(range(len(scaled)), key=scaled.__getitem__)
        self.sample_log(best)
        return best

    def sample_scaled(self, logits):
        heat = self.args.heat or 1.0
        return [value / heat for value in logits]

    def sample_log(self, token):
        if self.args.verbose:
            self.log(f"rank {self.rank}: {token} after {self.sampled}")

    # ============ Main ============

    def step(self, uuid, logits):
        self.take_pages(uuid, 1)
        token = self.sample_tokens(logits)
        self.done += 1
        return token

    def finish(self, uuid):
        self.give_pages(uuid)
        self.done -= 1
        return self.report()

    def report(self):
        return json.dumps({"done": self.done, "names": self.names})
"""
MAIN = "from app.worker import Worker\n\ndef main(worker):\n    worker.step('a', [1.0]).finish('a')\n"
POOL = "class Pool:\n    def __init__(self, args): ...\n"


def tree(worker: str = WORKER, **files: str) -> Tree:
    return tree_of(worker.encode(), **{"app__pool": POOL, "app__main": MAIN, **files})


def graph(worker: str = WORKER) -> ClassGraph:
    return class_graph(tree(worker), PATH, "Worker")


def planned(worker: str = WORKER, wanted: Wanted | None = None, **files: str) -> ClassPlan:
    files_ = tree(worker, **files)
    found = class_graph(files_, PATH, "Worker")
    asked = wanted or Wanted(budget=60, top=8)
    return try_all(files_, found, asked, candidates(files_, found, asked))
