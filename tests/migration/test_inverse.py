"""Proof files, verify, inline, replay and commute on the golden cuts."""

from __future__ import annotations

import dataclasses

import pytest

from migration.code.source import read_source
from migration.code.structure import outline
from migration.code.tree import DiskTree, OverlayTree, Tree
from migration.errors import MigrationError
from migration.inverse.commute import Commute, Ordered, commute
from migration.inverse.inline import InlinePlan, InlineRefused, plan_inline
from migration.inverse.replay import plan_replay
from migration.move.cut import CutPlan, plan_cut, select
from migration.move.planned import planned_bodies
from migration.phases.cleanup import CleanupPlan, plan_cleanup
from migration.phases.gate import GatePlan, plan_gate
from migration.phases.port import PortPlan, plan_port
from migration.proofs.record import ProofFile, dumps, loads, record, record_cleanup, record_gate, record_port
from migration.proofs.verify import Broken, Verified, verify

from .golden_cases import GOLDEN, cut, recipe_of
from .support import RECIPE, DictTree, planned, tree_of, worker_source

CASES = sorted(path.parent.name for path in GOLDEN.glob("*/after"))


def landed(case: str) -> tuple[OverlayTree, ProofFile, bytes]:
    """The golden tree after the cut, its proof file (written and read), and the original."""
    outcome = cut(case)
    assert isinstance(outcome, CutPlan)
    proof = loads(dumps(record(outcome)), case)
    after = {change.path: change.after for change in outcome.changes if change.after is not None}
    original = DiskTree(GOLDEN / case / "before").read(outcome.recipe.source_file)
    assert original is not None
    return OverlayTree(DiskTree(GOLDEN / case / "before"), after), proof, original


def edited(tree: Tree, path: str, old: bytes, new: bytes) -> OverlayTree:
    data = tree.read(path)
    assert data is not None and old in data
    return OverlayTree(tree, {path: data.replace(old, new, 1)})


@pytest.mark.parametrize("case", CASES)
def test_a_landed_cut_verifies_and_its_original_is_restored(case: str):
    tree, proof, original = landed(case)
    (verdict,) = verify(tree, [proof])
    assert isinstance(verdict, Verified) and (verdict.original, verdict.remarks) == (original, ())
    assert verdict.share.percent == 100 and verdict.share.added == 0


@pytest.mark.parametrize("case", CASES)
def test_cut_then_inline_gives_back_the_original_bytes(case: str):
    tree, proof, original = landed(case)
    outcome = plan_inline(tree, proof)
    assert isinstance(outcome, InlinePlan) and outcome.exact
    after = {change.path: change.after for change in outcome.changes}
    assert after[proof.recipe.source_file] == original
    assert all(after[path] is None for path in (proof.recipe.target_file, *proof.created))


@pytest.mark.parametrize(
    ("path", "old", "new", "said"),
    [
        ("app/parts/cache.py", b"return self", b"return  self", "app/parts/cache.py was edited"),
        ("app/worker.py", b"class Worker", b"class  Worker", "app/worker.py was edited"),
        ("app/parts/cache.py", b"def read", b"def reads", "read is missing"),
    ],
)
def test_an_edit_of_either_side_breaks_the_proof(path: str, old: bytes, new: bytes, said: str):
    tree, proof, _ = landed("lazy_attributes")
    name = proof.names[0].encode()
    (verdict,) = verify(edited(tree, path, old.replace(b"read", name), new.replace(b"read", name)), [proof])
    assert isinstance(verdict, Broken)
    assert any(said.replace("read is", f"{proof.names[0]} is") in reason for reason in verdict.reasons)


def test_an_edited_body_is_named():
    tree, proof, _ = landed("hosted")
    handler = proof.recipe.target_file
    (verdict,) = verify(edited(tree, handler, b"_Worker__secret * 2", b"_Worker__secret * 3"), [proof])
    assert isinstance(verdict, Broken)
    assert "CacheManager._Worker__hidden is not what was moved" in verdict.reasons


def test_an_edited_proof_file_is_found():
    tree, proof, _ = landed("hosted")
    details = tuple(dataclasses.replace(d, renames=()) for d in proof.proof.details)
    faked = dataclasses.replace(proof, proof=dataclasses.replace(proof.proof, details=details))
    (verdict,) = verify(tree, [faked])
    assert isinstance(verdict, Broken) and "states something else" in verdict.reasons[0]
    (verdict,) = verify(tree, [dataclasses.replace(proof, before="0" * 64)])
    assert isinstance(verdict, Broken) and "cannot be restored" in verdict.reasons[0]


@pytest.mark.parametrize("data", [b"", b"[]", b'{"schema": 99}', b'{"schema": 1}'])
def test_what_is_no_proof_file_is_one_clear_error(data: bytes):
    with pytest.raises(MigrationError) as error:
        loads(data, "x.proof.json")
    assert error.value.code == "MG110" and str(error.value).startswith("x.proof.json")


def test_slices_of_one_file_verify_as_a_stack():
    first, second = two_slices()
    tree = tree_of(TWO)
    plan = plan_cut(first, tree)
    assert isinstance(plan, CutPlan)
    after = OverlayTree(tree, {c.path: c.after for c in plan.changes if c.after is not None})
    then = plan_cut(second, after)
    assert isinstance(then, CutPlan)
    both = OverlayTree(after, {c.path: c.after for c in then.changes if c.after is not None})
    verdicts = verify(both, [record(plan), record(then)])
    assert [type(v) for v in verdicts] == [Verified, Verified]
    assert [v.proof.recipe.name for v in verdicts] == ["second", "first"]


@pytest.mark.parametrize("case", CASES)
def test_every_phase_verifies_and_an_edit_after_it_does_not(case: str):
    recipe = recipe_of(case)
    tree: Tree = DiskTree(GOLDEN / case / "before")
    for plan, record_phase, kind in (
        (plan_port, record_port, PortPlan),
        (plan_gate, record_gate, GatePlan),
        (plan_cleanup, record_cleanup, CleanupPlan),
    ):
        outcome = plan(recipe, tree)  # type: ignore[operator]
        assert isinstance(outcome, kind), outcome
        proof = loads(dumps(record_phase(outcome, tree)), case)  # type: ignore[operator]
        tree = OverlayTree(tree, {c.path: c.after for c in outcome.changes})
        (verdict,) = verify(tree, [proof])
        assert isinstance(verdict, Verified), verdict
        data = tree.read(recipe.source_file)
        assert data is not None
        (verdict,) = verify(OverlayTree(tree, {recipe.source_file: data + b"\n# more\n"}), [proof])
        assert isinstance(verdict, Broken)


def test_inline_keeps_an_edit_of_the_handler_made_since():
    tree, proof, original = landed("hosted")
    handler = proof.recipe.target_file
    outcome = plan_inline(edited(tree, handler, b"return value * 2", b"return value * 3"), proof)
    assert isinstance(outcome, InlinePlan) and not outcome.exact
    (worker,) = (c.after for c in outcome.changes if c.path == proof.recipe.source_file)
    assert worker == original.replace(b"return value * 2", b"return value * 3")


def test_inline_refuses_to_lose_what_was_added_to_the_handler():
    tree, proof, _ = landed("hosted")
    handler = tree.read(proof.recipe.target_file)
    assert handler is not None
    for added in (b"\n    def more(self):\n        return 1\n", b"\n\ndef helper():\n    return 1\n"):
        outcome = plan_inline(OverlayTree(tree, {proof.recipe.target_file: handler + added}), proof)
        assert isinstance(outcome, InlineRefused) and [r.code for r in outcome.refusals] == ["MG112"]


TWO = worker_source(
    "def one(self):\n    return json.dumps(self.name)\n\ndef two(self):\n    return floor(self.rate)\n",
    head="import json\nfrom math import floor\n",
)


def two_slices() -> tuple:  # type: ignore[type-arg]
    first = dataclasses.replace(RECIPE, name="first", section="", methods=("one",))
    second = dataclasses.replace(
        first, name="second", methods=("two",), target_file="app/parts/other.py", handler_class="Other"
    )
    return first, second


def test_two_slices_commute_byte_for_byte():
    first, second = two_slices()
    outcome = commute(first, second, tree_of(TWO))
    assert isinstance(outcome, Commute)
    assert outcome.files == (
        "app/parts/__init__.py",
        "app/parts/cache.py",
        "app/parts/other.py",
        "app/worker.py",
    )


def test_slices_of_the_same_method_do_not_commute():
    first, second = two_slices()
    outcome = commute(first, dataclasses.replace(second, methods=("one", "two")), tree_of(TWO))
    assert isinstance(outcome, Ordered) and outcome.order is None


NEWER = worker_source(
    """
def same(self):
    return self.name  # a comment does not count

def changed(self):
    return self.name * 3

def renamed_since(self):
    return [self.name]

def hopeless(self):
    return locals()
"""
)
OLDER = worker_source(
    """
def same(self):
    return self.name

def changed(self):
    return self.name * 2

def called(self):
    return [self.name]

def hopeless(self):
    return {}

def gone(self):
    return 0
"""
)


def test_replay_tells_unchanged_re_derived_and_conflict_apart():
    recipe = dataclasses.replace(
        RECIPE, section="", methods=("same", "changed", "called", "hopeless", "gone")
    )
    shape = outline(read_source("app/worker.py", OLDER), "Worker")
    bodies = planned_bodies(select(shape, recipe))
    replay = plan_replay(recipe, bodies, tree_of(NEWER))
    assert [(m.name, m.state) for m in replay.methods] == [
        ("same", "unchanged"),
        ("changed", "re-derived"),
        ("called", "conflict"),
        ("hopeless", "conflict"),
        ("gone", "conflict"),
    ]
    why = {m.name: m.why for m in replay.methods}
    assert "renamed_since" in why["called"] and "MG011" in why["hopeless"] and "no method" in why["gone"]
    assert isinstance(replay.outcome, CutPlan) and replay.outcome.methods == ("same", "changed")


def test_replay_of_a_recipe_without_bodies_is_an_error():
    with pytest.raises(MigrationError) as error:
        plan_replay(RECIPE, {}, DictTree({}))
    assert error.value.code == "MG401"


def test_a_new_method_under_the_banner_is_re_derived():
    shape = outline(read_source("app/worker.py", OLDER), "Worker")
    bodies = planned_bodies(select(shape, RECIPE))
    replay = plan_replay(RECIPE, bodies, tree_of(NEWER))
    assert ("renamed_since", "re-derived") in [(m.name, m.state) for m in replay.methods]


def test_the_plan_of_a_small_worker_is_recorded_with_its_packages():
    proof = record(planned(TWO, dataclasses.replace(RECIPE, section="", methods=("one",))))
    assert proof.created == ("app/parts/__init__.py",) and proof.names == ("one",)
