"""What a slice brings beside its handler: traced types, strict fakes, adapters."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from migration.cli import main
from migration.code.tree import DiskTree, OverlayTree, Tree
from migration.errors import MigrationError
from migration.inverse.inline import InlinePlan, plan_inline
from migration.move.cut import CutPlan, CutRefused, plan_cut
from migration.phases.cleanup import CleanupPlan, plan_cleanup
from migration.phases.gate import GatePlan, plan_gate
from migration.phases.port import PortPlan, plan_port
from migration.proofs.record import ProofFile, dumps, loads, record, record_cleanup, record_gate, record_port
from migration.proofs.verify import Broken, Verified, verify
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


PHASES = (
    (plan_port, record_port, PortPlan),
    (plan_gate, record_gate, GatePlan),
    (plan_cleanup, record_cleanup, CleanupPlan),
)


def landed() -> list[tuple[str, Tree, ProofFile]]:
    """The tree and the proof file, written and read, after the one-step cut and after each of three phases."""
    plan = cut("generated")
    assert isinstance(plan, CutPlan)
    found: list[tuple[str, Tree, ProofFile]] = [
        ("cut", OverlayTree(BEFORE, {c.path: c.after for c in plan.changes}), loads(dumps(record(plan)), "x"))
    ]
    tree: Tree = BEFORE
    for phase, note, kind in PHASES:
        outcome = phase(RECIPE, tree)  # type: ignore[operator]
        assert isinstance(outcome, kind), outcome
        proof = loads(dumps(note(outcome, tree)), "x")  # type: ignore[operator]
        tree = OverlayTree(tree, {c.path: c.after for c in outcome.changes})
        found.append((proof.phase, tree, proof))
    return found


LANDED = landed()


@pytest.mark.parametrize(("phase", "tree", "proof"), LANDED, ids=[phase for phase, *_ in LANDED])
def test_verify_fails_for_an_adapter_and_remarks_on_a_fake_that_is_not_as_it_was_written(
    phase: str, tree: Tree, proof: ProofFile
):
    (adapter,) = {entry.file for entry in RECIPE.adapters}
    assert [path for path, _ in proof.generated] == [adapter, RECIPE.fakes]
    (verdict,) = verify(tree, [proof])
    assert isinstance(verdict, Verified) and verdict.remarks == ()
    for change, said in (({adapter: None}, "is missing"), ({adapter: b"#"}, "was edited after the proof")):
        (verdict,) = verify(OverlayTree(tree, change), [proof])  # type: ignore[arg-type]
        assert isinstance(verdict, Broken) and verdict.reasons == (f"{adapter} {said}",)
    for change, said in (
        ({RECIPE.fakes: None}, "is missing"),
        ({RECIPE.fakes: b"#"}, "was edited after the proof"),
    ):
        (verdict,) = verify(OverlayTree(tree, change), [proof])  # type: ignore[arg-type]
        assert isinstance(verdict, Verified) and verdict.remarks == (f"{RECIPE.fakes} {said}",)


def test_an_adapter_and_the_handler_edited_together_are_both_named():
    _, tree, proof = LANDED[0]
    (adapter,) = {entry.file for entry in RECIPE.adapters}
    handler = tree.read(RECIPE.target_file)
    assert handler is not None
    changes = {adapter: b"#", RECIPE.target_file: handler + b"\n# more\n"}
    (verdict,) = verify(OverlayTree(tree, changes), [proof])
    assert isinstance(verdict, Broken)
    assert verdict.reasons[:2] == tuple(
        f"{path} was edited after the proof" for path in (RECIPE.target_file, adapter)
    )


def test_a_proof_file_from_before_there_were_digests_of_these_files_is_still_read():
    _, tree, proof = LANDED[0]
    body = json.loads(dumps(proof))
    del body["generated"]
    (verdict,) = verify(tree, [loads(json.dumps(body).encode(), "x")])
    assert isinstance(verdict, Verified)


def test_verify_prints_the_remark_and_the_broken_adapter(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for path in BEFORE.python_files():
        data = BEFORE.read(path)
        assert data is not None
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    shutil.copy(GOLDEN / "generated" / "before" / "types.json", tmp_path)
    recipe = shutil.copy(GOLDEN / "generated" / "slice.toml", tmp_path)

    def migrate(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as exit_:
            main([*arguments, "--repo", str(tmp_path)])
        return int(exit_.value.code or 0), capsys.readouterr().out

    assert migrate("port", str(recipe), "--cut", "--allow-dirty")[0] == 0
    (tmp_path / RECIPE.fakes).write_text("# by hand\n")
    code, said = migrate("verify")
    assert code == 0 and f"  beside the proof: {RECIPE.fakes} was edited after the proof\n" in said
    assert json.loads(migrate("verify", "--json")[1])["proofs"][0]["remarks"]
    (adapter,) = {entry.file for entry in RECIPE.adapters}
    (tmp_path / adapter).unlink()
    code, said = migrate("verify")
    assert code == 2 and f"MG208 {adapter} is missing" in said


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
