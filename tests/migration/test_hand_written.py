"""Which delegates cleanup keeps for base and route: those that may be called on the worker, and no others."""

from __future__ import annotations

import pytest

from migration.code.tree import OverlayTree
from migration.phases.cleanup import CleanupPlan, plan_cleanup
from migration.phases.gate import GatePlan, plan_gate
from migration.phases.hand_written import worker_mentions
from migration.phases.port import PortPlan, plan_port
from migration.recipe import parse_recipe

from .request_slice import BACKENDS, TEXT, WORKER
from .support import tree_of

RECIPE = parse_recipe(
    TEXT.replace('siblings = "handler"', 'siblings = "handler"\nbase = "app.planner:Planner"')
    + '\n[gate]\nroute = "app.native:Native"\n',
    "x.toml",
)


def said(code: str) -> list[int]:
    return [line for word, line in worker_mentions(code.encode(), RECIPE, {"_room"}) if word == "_room"]


@pytest.mark.parametrize(
    "code",
    [
        "def _room(self):\n    return 1\n",
        "def f(self):\n    return self._room()\n",
        "def f(worker):\n    return CacheManager.for_worker(worker)._room()\n",
        "def f(self, request):\n    return self.keeper.on(request)._room()\n",
        "def f(worker):\n    handler = CacheManager.for_worker(worker)\n    return handler._room()\n",
        "def f(handler: CacheManager):\n    return handler._room()\n",
        "def f(handler: 'app.parts.cache.CacheManager'):\n    return handler._room()\n",
        "class N:\n    def __init__(self, w):\n        self.h = CacheManager.for_worker(w)\n"
        "    def f(self):\n        return self.h._room()\n",
        "class N:\n    def f(self, w):\n        return self.plan(w)._room()\n"
        "    def plan(self, w) -> 'Self':\n        ...\n",
        "class N:\n    def f(self, w):\n        return type(self)(pool=w)._room()\n",
        "def f(w):\n    h = CacheManager.for_worker(w)\n    return [h._room() for _ in range(3)]\n",
        '"""Instead of _room of the worker."""\n# _room\n',
        "from x import _rooms\n_roomy = 1\n",
    ],
)
def test_a_call_on_a_handler_keeps_nothing(code: str):
    assert said(code) == []


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("def f(worker):\n    return worker._room()\n", [2]),
        ("def f(self):\n    return self.worker._room()\n", [2]),
        ("def f(worker):\n    return getattr(worker, '_room')()\n", [2]),
        ("def f(worker):\n    return f'{worker}._room'\n", [2]),
        ("def f(worker):\n    return find(worker)._room()\n", [2]),
        ("def f(h: CacheManager, w):\n    h = w\n    return h._room()\n", [3]),
        ("def f(w):\n    h = CacheManager.for_worker(w)\n    h = w\n    return h._room()\n", [4]),
        ("def f(w):\n    h = CacheManager.for_worker(w)\n    return (lambda h: h._room())(w)\n", [3]),
        ("def f(w):\n    h = CacheManager.for_worker(w)\n    del h\n    return h._room()\n", [4]),
        ("def f(w):\n    for h in w:\n        h._room()\n", [3]),
        (
            "class N:\n    def __init__(self, w):\n        self.h = CacheManager.for_worker(w)\n"
            "    def g(self, w):\n        self.h = w\n    def f(self):\n        return self.h._room()\n",
            [7],
        ),
        (
            "class N:\n    def f(self, o, w):\n        o.h = CacheManager.for_worker(w)\n        self.h._room()\n",
            [4],
        ),
        (
            "class N:\n    def __init__(self, w):\n        self.h = CacheManager.for_worker(w)\n"
            "    def f(self, other):\n        return other.h._room()\n",
            [5],
        ),
        ("class N(app.Worker):\n    def f(self):\n        return self._room()\n", [3]),
        ("def f(:\n    worker._room()\n", [2]),
    ],
)
def test_what_may_be_the_worker_keeps_the_delegate(code: str, lines: list[int]):
    assert said(code) == lines


NATIVE = """\
from app.parts.cache import CacheManager


class Native:
    def __init__(self, worker):
        self.worker = worker
        self.handler = CacheManager.for_worker(worker)

    @classmethod
    def for_worker(cls, worker):
        return cls(worker)

    def admit(self, uuid, wanted):
        return self.handler.admit(uuid, wanted)

    def _room(self):
        return self.handler._room()
"""
PLANNER = "class Planner:\n    def plan(self, req):\n        return self.on(req)._room()\n"


@pytest.mark.parametrize(
    ("native", "kept"),
    [
        (NATIVE, {"admit": "public"}),
        (NATIVE.replace("handler._room", "worker._room"), {"admit": "public", "_room": "app/native.py:17"}),
    ],
)
def test_cleanup_keeps_a_delegate_only_for_the_worker(native: str, kept: dict[str, str]):
    worker = WORKER.replace(b"room", b"_room")
    files = {"app__backends": BACKENDS, "app__native": native, "app__planner": PLANNER}
    tree = OverlayTree(tree_of(worker, **files), {})
    for plan in (plan_port, plan_gate, plan_cleanup):
        outcome = plan(RECIPE, tree)
        assert isinstance(outcome, PortPlan | GatePlan | CleanupPlan), outcome
        tree = OverlayTree(tree, {change.path: change.after for change in outcome.changes})
    assert isinstance(outcome, CleanupPlan) and dict(outcome.kept) == kept
