"""What `migrate inventory` finds in a worker with the habits of the real one."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from migration.survey.inventory import Inventory, MethodReport, take_inventory

WORKER = '''
import os
import torch.distributed as dist


class Other:
    pass


class Worker:
    LIMIT = 3

    def __init__(self):
        self.model = None
        self.rank = dist.get_rank()

    # ============ Admission ============

    def poll(self):
        if not hasattr(self, "_queue"):
            self._queue: list = []
        self._queue.extend(self.take(self.LIMIT))
    # ============ Not a banner: inside a method ============
        dist.broadcast_object_list(self._queue, src=0)
        dist.get_world_size()
        return getattr(self, "name", None) or self.rank

    # ============ End Admission ============

    def take(self, count):
        callback = self.poll
        return [callback for _ in range(count)]

    # ------------------------------
    # Phases
    # ------------------------------

    def switch(self, key):
        del self.model
        setattr(self, key, 1)
        setattr(self, "mode", 2)
        os.environ["PHASE"] = key

        def later():
            return self.mode

        return sorted([later()], key=lambda item: self.rank)

    @staticmethod
    def flag():
        """# ============ Not a banner ============"""
        return os.getenv("FLAG"), os.environ.get("OTHER", "0")

    def take(self, count, *extra):
        self.count += count
        return consume(self)
'''


@pytest.fixture(scope="module")
def found() -> Inventory:
    return take_inventory("worker.py", WORKER.encode())


def method(found: Inventory, name: str, index: int = 0) -> MethodReport:
    return [m for m in found.methods if m.name == name][index]


def test_the_longest_class_is_taken_and_the_others_named(found: Inventory):
    assert (found.class_name, found.other_classes) == ("Worker", ("Other",))
    assert take_inventory("worker.py", WORKER.encode(), "Other").methods == ()


def test_sections_cover_every_line_and_gaps_show_as_gaps(found: Inventory):
    assert [(s.title, s.methods) for s in found.sections] == [
        (None, 1),
        ("Admission", 1),
        (None, 1),
        ("Phases", 3),
    ]
    ends = [(s.first_line, s.last_line) for s in found.sections]
    assert all(before[1] + 1 == after[0] for before, after in itertools.pairwise(ends))
    assert ends[0][0] == found.first_line and ends[-1][1] == found.last_line == len(WORKER.splitlines())


def test_reads_writes_and_calls(found: Inventory):
    poll = method(found, "poll")
    assert poll.reads == ("LIMIT", "_queue", "name", "rank")
    assert poll.writes == ("_queue",) and poll.calls == ("take",)
    assert method(found, "take").method_references == ("poll",)
    assert method(found, "take", 1).writes == ("count",)


def test_lazy_attributes_are_those_that_init_does_not_make(found: Inventory):
    assert found.lazy_attributes == ("_queue", "count", "mode")
    assert method(found, "poll").creates_lazily == ("_queue",)
    assert found.attributes == ("LIMIT", "_queue", "count", "mode", "model", "name", "rank")


def test_reflection_with_and_without_a_name(found: Inventory):
    assert [(r.kind, r.attribute) for r in method(found, "poll").reflection] == [
        ("hasattr", "_queue"),
        ("getattr", "name"),
    ]
    assert [(r.kind, r.attribute) for r in method(found, "switch").reflection] == [
        ("delete", "model"),
        ("dynamic", None),
        ("setattr", "mode"),
    ]


def test_closures_escapes_collectives_environment(found: Inventory):
    switch = method(found, "switch")
    assert [name.split(":")[0] for name in switch.nested_over_self] == ["later", "lambda"]
    assert method(found, "take", 1).self_escapes and not method(found, "take").self_escapes
    assert [name for name, _ in method(found, "poll").collectives] == ["dist.broadcast_object_list"]
    assert [name for name, _ in switch.environment] == ["PHASE"]
    assert [name for name, _ in method(found, "flag").environment] == ["FLAG", "OTHER"]


def test_duplicate_definitions_point_at_each_other(found: Inventory):
    first, second = method(found, "take"), method(found, "take", 1)
    assert first.other_definitions == (second.first_line,) and second.other_definitions == (first.first_line,)


def test_tables_and_json_say_the_same(found: Inventory, tmp_path: Path):
    path = tmp_path / "worker.py"
    path.write_text(WORKER, encoding="utf-8")
    command = [sys.executable, "-c", "from migration.cli import main; main()", "inventory", str(path)]
    tables = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    values = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    data = json.loads(values.stdout)
    assert [m["name"] for m in data["methods"]] == [m.name for m in found.methods]
    for name in (
        "Admission",
        "Phases",
        "(no banner)",
        "6 methods",
        "3 created outside __init__",
        "1 defined more",
    ):
        assert name in tables.stdout
