"""What a slice brings beside its handler: traced types, strict fakes, adapters."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

from migration.code.tree import DiskTree, OverlayTree, Tree
from migration.errors import MigrationError
from migration.inverse.inline import InlinePlan, plan_inline
from migration.move.cut import CutPlan, CutRefused, plan_cut
from migration.proofs.record import record
from migration.recipe import AdapterEntry

from .golden_cases import GOLDEN, cut, recipe_of

RECIPE = recipe_of("generated")
BEFORE = DiskTree(GOLDEN / "generated" / "before")

TEST = """
from app.parts.cache import CacheManager
from tests.fakes_cache import FakeCacheState, FakeGpuKvBackend, calls_of

gpu_kv = FakeGpuKvBackend(closed=False, allocate_pages=lambda uuid, n: [n], free_pages=lambda: 7)
state = FakeCacheState(names=[], note=lambda count, *names: count)
cache = CacheManager(gpu_kv=gpu_kv, state=state)
assert cache.allocate("a", 3) == ([3], 7, 1) and state.names == ["a"]
assert cache.reset() == (7, True) and gpu_kv.closed and type(state.pool).__name__ == "Pool"
print([name for name, *_ in calls_of(gpu_kv)])
"""


def edited(path: str, old: bytes, new: bytes, tree: Tree = BEFORE) -> OverlayTree:
    data = tree.read(path)
    assert data is not None and old in data
    return OverlayTree(tree, {path: data.replace(old, new)})


def test_the_handler_is_tested_with_its_fakes_alone():
    folder = GOLDEN / "generated" / "after"
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(
        [sys.executable, "-c", TEST], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "['allocate_pages', 'free_pages', 'free_pages']\n"


def test_each_member_says_that_a_trace_typed_it():
    plan = cut("generated")
    assert isinstance(plan, CutPlan)
    evidence = {m.name: m.evidence for handle in plan.handles for m in handle.members}
    assert evidence["names"] == "traced in 2 calls" and evidence["note"] == "definition, traced in 2 calls"
    assert evidence["pool"] == "traced in 2 calls" and evidence["free_pages"] == "given by the recipe"


@pytest.mark.parametrize(
    ("tree", "code"),
    [
        (edited("types.json", b"{", b"[", BEFORE), "MG521"),
        (edited("types.json", b'"schema": 1', b'"schema": 9'), "MG521"),
        (edited("app/pool.py", b"class Pool", b"class Tool"), "MG102"),
    ],
)
def test_what_cannot_be_read_is_an_error(tree: Tree, code: str):
    with pytest.raises(MigrationError) as error:
        plan_cut(RECIPE, tree)
    assert error.value.code == code


def test_a_types_file_that_is_not_there_is_an_error():
    with pytest.raises(MigrationError) as error:
        plan_cut(dataclasses.replace(RECIPE, types="gone.json"), BEFORE)
    assert error.value.code == "MG303" and "gone.json" in str(error.value)


def test_an_adapter_that_does_not_fit_and_files_that_are_there_are_refused():
    (entry,) = RECIPE.adapters
    members = (("allocate_pages", "allocate", (("uuid", "seq"),)), ("free_pages", "left", ()))
    recipe = dataclasses.replace(RECIPE, adapters=(dataclasses.replace(entry, members=members),))
    tree = OverlayTree(BEFORE, {RECIPE.fakes: b"# mine\n"})
    outcome = plan_cut(recipe, tree)
    assert isinstance(outcome, CutRefused)
    assert [(r.code, r.where) for r in outcome.refusals] == [
        ("MG526", "allocate_pages"),
        ("MG525", "allocate_pages"),
        ("MG103", "tests/fakes_cache.py"),
    ]


def test_an_adapter_may_serve_a_protocol_of_another_module():
    protocols = b"""
from typing import Protocol

class GpuKvBackend(Protocol):
    def free_pages(self) -> int: ...
"""
    handle = dataclasses.replace(
        RECIPE.handles[0], protocol_text="", protocol_from="app.protocols:GpuKvBackend"
    )
    entry = AdapterEntry("gpu_kv", "PoolBackend", "app/b.py", "app.pool:Pool", (("free_pages", "left", ()),))
    recipe = dataclasses.replace(
        RECIPE,
        handles=(dataclasses.replace(handle, adapter="app.b:PoolBackend"), RECIPE.handles[1]),
        adapters=(entry,),
        rewrites=RECIPE.rewrites[1:],
        fakes="",
    )
    worker = BEFORE.read("app/worker.py")
    assert worker is not None
    plain = worker.replace(b"self.pool.allocate(uuid, n)", b"[]").replace(b"self.pool.closed", b"self.closed")
    outcome = plan_cut(recipe, OverlayTree(BEFORE, {"app/protocols.py": protocols, "app/worker.py": plain}))
    assert isinstance(outcome, CutPlan), outcome
    (adapter,) = (c.after for c in outcome.changes if c.path == "app/b.py")
    assert adapter is not None and b"from app.protocols import GpuKvBackend" in adapter


def test_inline_takes_away_what_the_cut_brought_but_no_file_that_was_edited():
    plan = cut("generated")
    assert isinstance(plan, CutPlan)
    after = OverlayTree(BEFORE, {c.path: c.after for c in plan.changes if c.after is not None})
    for tree, kept in (
        (after, set()),
        (edited(RECIPE.fakes, b"Generated.", b"Mine.", after), {RECIPE.fakes}),
    ):
        outcome = plan_inline(tree, record(plan))
        assert isinstance(outcome, InlinePlan) and outcome.exact
        gone = {change.path for change in outcome.changes if change.after is None}
        brought = {change.path for change in plan.changes} - {RECIPE.source_file}
        assert gone == brought - kept
