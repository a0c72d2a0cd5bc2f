"""A frozen snapshot in place of reads at each use: only where nothing can tell the difference."""

from __future__ import annotations

import dataclasses

import pytest

from migration.errors import Refusal
from migration.move.cut import CutPlan, CutRefused, plan_cut
from migration.move.proof import Proof
from migration.recipe import SnapshotSpec

from .support import RECIPE, result, tree_of
from .test_declared import proved_again

FIELDS = ("args.limit", "size")
RECIPE_ = dataclasses.replace(RECIPE, snapshot=SnapshotSpec("config", "Config", FIELDS))

WORKER = """
class Worker(Base):
    kind = "w"

    def __init__(self, args):
        self.size = 1
        self.args = args
        self.total = self.ready()

    def ready(self):
        return self.plan(1)

    # ============ Cache ============

    def plan(self, count):
        return count * self.size < self.args.limit

    # ============ Rest ============

    def rest(self):
        return 0
"""
INIT = "        self.size = 1\n        self.args = args\n"


def why(worker: str, **files: str) -> list[str]:
    outcome = plan_cut(RECIPE_, tree_of(worker.encode(), **files))
    assert isinstance(outcome, CutPlan | CutRefused)
    if isinstance(outcome, CutPlan):
        handler = result(outcome, RECIPE.target_file)
        assert "return count * self._config.size < self._config.limit" in handler
        return []
    return [f"{r.code} {r.where}: {r.message}" for r in outcome.refusals]


def changed(old: str, new: str) -> str:
    assert WORKER.count(old) == 1
    return WORKER.replace(old, new)


def test_what_is_set_first_thing_and_never_written_is_a_snapshot():
    assert why(WORKER) == []


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("self.size = 2", "MG119 size: app/worker.py:21 writes .size"),
        ("self.size += 2", "MG119 size: app/worker.py:21 writes .size"),
        ("del self.size", "MG119 size: app/worker.py:21 writes .size"),
        ("self.a, self.size = 1, 2", "MG119 size: app/worker.py:21 writes .size"),
        ("for self.size in []: pass", "MG119 size: app/worker.py:21 writes .size"),
        ("setattr(self, 'size', 2)", "MG119 size: app/worker.py:21 writes .size"),
        ("object.__setattr__(self, 'size', 2)", "MG119 size: app/worker.py:21 writes .size"),
        ("setattr(self, self.name, 2)", "MG119 size: rest may write any attribute"),
        ("self.__dict__.update(size=2)", "MG119 size: rest may write any attribute"),
        ("vars(self)['size'] = 2", "MG119 size: rest may write any attribute"),
        ("self.args = 2", "MG119 args.limit: app/worker.py:21 writes .args"),
        ("self.args.limit = 2", "MG119 args.limit: app/worker.py:21 writes .limit"),
        ("args = self.args; args.limit = 2", "MG119 args.limit: app/worker.py:21 writes .limit"),
        ("return hasattr(self.args, 'limit')", "MG120 args.limit: hasattr() asks whether there is limit"),
        ("return getattr(self.args, 'limit', 1)", "MG120 args.limit: getattr() asks whether there is limit"),
    ],
)
def test_a_field_that_may_change_is_refused_with_the_site(rest: str, reason: str):
    assert reason in why(changed("        return 0\n", f"        {rest}\n"))


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ("def f(worker):\n    worker.size = 2\n", "MG119 size: app/other.py:2 writes .size"),
        ("def f(p, worker):\n    p.setattr(worker, 'size', 2)\n", "MG119 size: app/other.py:2 writes .size"),
        (
            "class S(Worker):\n    def f(self):\n        self.size = 2\n",
            "MG119 size: app/other.py:3 writes .size",
        ),
        ("class Base:\n    def f(self):\n        self.size = 2\n", "MG119 size: app/other.py:3 writes .size"),
        (
            "class M:\n    def f(self):\n        self.size = 2\nclass A(Worker): pass\nclass S(M, A): pass\n",
            "MG119 size: app/other.py:3 writes .size",
        ),
        (
            "class Args:\n    def grow(self):\n        self.limit = 2\n",
            "MG119 args.limit: app/other.py:3 writes .limit",
        ),
        (
            "class Args:\n    @property\n    def limit(self):\n        return 2\n",
            "MG119 args.limit: app/other.py:3 computes .limit",
        ),
        ("class Args:\n    def __init__(self):\n        self.limit = 2\n", ""),
        ("class Other:\n    def f(self):\n        self.size = 2\n", ""),
        ("class Worker:\n    def f(self):\n        self.size = 2\n", ""),
        (
            "import app.worker as w\nclass Worker(w.Worker):\n    def f(self):\n        self.size = 2\n",
            "MG119 size: app/other.py:4 writes .size",
        ),
        ("def f(worker):\n    return worker.size == 2\n", ""),
    ],
)
def test_what_other_files_write_counts_too(other: str, reason: str):
    assert why(WORKER, app__other=other) == ([reason] if reason else [])


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (
            "        if args:\n            self.size = 1\n        self.args = args\n",
            "__init__ does not set self.size in any",
        ),
        (
            "        self.args = args\n        self.ready()\n        self.size = 1\n",
            "__init__ hands out self.ready before",
        ),
        (
            "        self.args = args\n        args.add(self)\n        self.size = 1\n",
            "__init__ hands out self before",
        ),
        (
            "        self.args = args\n        if 1: return\n        self.size = 1\n",
            "__init__ may return before it sets",
        ),
        (
            "        self.size = 1\n        self.args = args\n        self.ready()\n        self.size = 2\n",
            "before it sets",
        ),
        ("        self.args = args\n", "__init__ does not set self.size in any case"),
    ],
)
def test_a_field_that_may_not_be_there_yet_is_refused(new: str, reason: str):
    found = why(changed(INIT, new))
    assert any(line.startswith("MG120 size: ") and reason in line for line in found)


def test_a_base_that_calls_a_moved_method_may_come_before_the_field():
    worker = changed(INIT, f"        super().__init__()\n{INIT}")
    base = "class Base:\n    def __init__(self):\n        {}\n"
    assert why(worker, app__base=base.format("self.other()")) == []
    found = why(worker, app__base=base.format("self.plan(1)"))
    assert (
        "MG120 size: the base in app/base.py may call a moved method before self.size is set in line 7"
        in found
    )


def test_a_class_attribute_is_always_there_but_an_instance_attribute_is_not_on_the_class():
    spec = SnapshotSpec("config", "Config", ("kind",))
    recipe = dataclasses.replace(RECIPE_, snapshot=spec)
    worker = changed(
        "    def plan(self, count):\n        return count * self.size < self.args.limit", "    {}"
    )
    body = "@classmethod\n    def plan(cls):\n        return cls.kind"
    assert isinstance(plan_cut(recipe, tree_of(worker.format(body).encode())), CutPlan)
    recipe = dataclasses.replace(RECIPE_, snapshot=SnapshotSpec("config", "Config", ("size",)))
    body = (
        "@classmethod\n    def plan(cls):\n        return 1\n\n    def more(self):\n        return self.size"
    )
    outcome = plan_cut(recipe, tree_of(worker.format(body).encode()))
    assert isinstance(outcome, CutRefused)
    assert [(r.code, r.message) for r in outcome.refusals] == [
        ("MG120", "plan runs where self.size need not be set")
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "self.args.limit.x = 1",
        "self.size[0] = 1",
        "self.size.inner.append(1)",
        "del self.size[0]",
        "self.size[0] += 1",
    ],
)
def test_what_a_snapshot_holds_is_not_changed_through_it(statement: str):
    old = "        return count * self.size"
    found = why(changed(old, f"        {statement}\n{old}"))
    assert len(found) == 1 and found[0].startswith("MG121 plan: it changes config.")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max_tokens=worker.args.max_tokens", "max_tokens=worker.args.kv.page_size"),
        ("max_tokens=worker.args.max_tokens,\n", ""),
        ("config=PlanConfig(", "config=dict("),
        ("@dataclass(frozen=True)", "@dataclass"),
        ("    device: Any\n", "    device: Any = None\n"),
        ("    device: Any\n", "    device: Any\n    other: Any\n"),
        ("self._config = config", "self._config = state"),
        ("count < self._config.max_tokens", "count < self._config.page_size"),
        ("count < self._config.max_tokens", "count < self._state.max_tokens"),
    ],
)
def test_a_fault_in_a_snapshot_is_found(old: str, new: str):
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    assert isinstance(proved_again("snapshot", lambda text: text), Proof)
    found = proved_again("snapshot", change)
    assert isinstance(found, tuple)
    assert any(isinstance(refusal, Refusal) and refusal.code == "MG202" for refusal in found)
