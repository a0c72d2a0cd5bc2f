"""Port, gate and cleanup on the golden workers: same behaviour in every phase and on both routes."""

from __future__ import annotations

import dataclasses
import shutil
import string
from collections.abc import Sequence
from pathlib import Path

import pytest

from migration.code.tree import DiskTree, OverlayTree
from migration.errors import MigrationError
from migration.ledger.change import FileChange
from migration.phases.cleanup import CleanupClean, CleanupPlan, CleanupRefused, plan_cleanup
from migration.phases.gate import GateClean, GatePlan, GateRefused, plan_gate
from migration.phases.parts import next_letter
from migration.phases.port import PortClean, PortPlan, PortRefused, plan_port
from migration.proofs.record import dumps, record_port
from migration.recipe import Recipe

from .golden_cases import GOLDEN, cut, files, recipe_of
from .support import RECIPE, DictTree, exercised, tree_of, worker_source

CASES = sorted(path.parent.name for path in GOLDEN.glob("*/after"))


def write(root: Path, changes: Sequence[FileChange]) -> None:
    for change in changes:
        assert change.after is not None
        path = root / change.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(change.after)


def printed(case: str, folder: Path, **environment: str) -> str:
    return exercised(GOLDEN / case / "exercise.py", folder, **environment)


def gated(case: str, tmp_path: Path) -> tuple[Recipe, Path]:
    root = tmp_path / case
    shutil.copytree(GOLDEN / case / "before", root, ignore=shutil.ignore_patterns("__pycache__"))
    recipe = recipe_of(case)
    port = plan_port(recipe, DiskTree(root))
    assert isinstance(port, PortPlan), port
    assert [change.path for change in port.changes if change.path == recipe.source_file] == []
    write(root, port.changes)
    gate = plan_gate(recipe, DiskTree(root))
    assert isinstance(gate, GatePlan), gate
    write(root, gate.changes)
    return recipe, root


@pytest.mark.parametrize("case", CASES)
def test_a_gated_worker_behaves_as_before_on_both_routes(case: str, tmp_path: Path):
    recipe, root = gated(case, tmp_path)
    before = printed(case, GOLDEN / case / "before")
    assert printed(case, root) == before
    assert printed(case, root, **{f"{recipe.prefix}_NATIVE": "1"}) == before


@pytest.mark.parametrize("case", CASES)
def test_cleanup_gives_the_cut_less_the_delegates_that_nobody_calls(case: str, tmp_path: Path):
    recipe, root = gated(case, tmp_path)
    clean = plan_cleanup(recipe, DiskTree(root))
    assert isinstance(clean, CleanupPlan), clean
    write(root, clean.changes)
    assert printed(case, root) == printed(case, GOLDEN / case / "before")
    assert isinstance(plan_cleanup(recipe, DiskTree(root)), CleanupClean)
    if not clean.dropped:
        assert files(root) == files(GOLDEN / case / "after")


@pytest.mark.parametrize("case", CASES)
def test_every_phase_finds_nothing_to_do_the_second_time(case: str, tmp_path: Path):
    recipe, root = gated(case, tmp_path)
    assert isinstance(plan_port(recipe, DiskTree(root)), PortClean)
    assert isinstance(plan_gate(recipe, DiskTree(root)), GateClean)


def test_refusals_of_the_cut_are_refusals_of_the_port():
    outcome = plan_port(recipe_of("refusals"), DiskTree(GOLDEN / "refusals" / "before"))
    assert isinstance(outcome, PortRefused)
    assert outcome.refusals == cut("refusals").refusals  # type: ignore[union-attr]


WORKER = worker_source(
    """
def first(self):
    return self._second() + 1

def _second(self):
    return len(self.name)

def _third(self):
    return 3
""",
    tail="\n    # ============ Rest ============\n\n    def rest(self):\n        return self.first()\n",
)


def after(tree: DictTree, outcome: PortPlan | GatePlan | CleanupPlan) -> DictTree:
    return DictTree({**tree.files, **{c.path: c.after for c in outcome.changes if c.after is not None}})


def ported(tree: DictTree, recipe: Recipe = RECIPE) -> DictTree:
    outcome = plan_port(recipe, tree)
    assert isinstance(outcome, PortPlan), outcome
    return after(tree, outcome)


def with_gates(tree: DictTree, recipe: Recipe = RECIPE) -> DictTree:
    outcome = plan_gate(recipe, tree)
    assert isinstance(outcome, GatePlan), outcome
    return after(tree, outcome)


def with_proof(tree: DictTree, outcome: PortPlan) -> DictTree:
    """What `migrate port` leaves."""
    proof = record_port(outcome, tree)
    files = {change.path: change.after for change in outcome.changes}
    return DictTree(
        {**tree.files, **{p: d for p, d in files.items() if d is not None}, proof.path: dumps(proof)}
    )


def test_a_port_over_its_budget_goes_in_parts_and_ends_as_one_port_would():
    recipe = dataclasses.replace(RECIPE, budget=34)
    tree = tree_of(WORKER)
    parts = []
    while isinstance(outcome := plan_port(recipe, tree), PortPlan):
        parts.append((outcome.part, outcome.methods, len(outcome.left)))
        assert outcome.added <= 34
        tree = with_proof(tree, outcome)
    assert isinstance(outcome, PortClean)
    assert len(parts) > 1 and [part for part, _, _ in parts] == list("abc"[: len(parts)])
    assert parts[-1][2] == 0
    assert tree.files[RECIPE.target_file] == ported(tree_of(WORKER)).files[RECIPE.target_file]


MANY = worker_source(
    "\n".join(
        f"def m{number}(self):\n    self.a{number} = 1\n    self.b{number} = 2\n    return self.name\n"
        for number in range(16)
    )
)


def test_each_part_has_the_letter_after_the_last_ones():
    # Protocol, constructor and members take most of a budget: the lines of the methods do not tell the parts.
    recipe, tree, parts = dataclasses.replace(RECIPE, budget=40), tree_of(MANY), []
    while isinstance(outcome := plan_port(recipe, tree), PortPlan):
        parts.append(outcome.part)
        tree = with_proof(tree, outcome)
    assert len(parts) > 3 and parts == list(string.ascii_lowercase[: len(parts)])


def test_parts_after_the_twenty_sixth_have_names_of_their_own():
    assert [next_letter(last) for last in ("", "y", "z", "ay", "az", "zz")] == [
        "a",
        "z",
        "aa",
        "az",
        "ba",
        "aaa",
    ]


def test_a_part_whose_proof_file_is_gone_is_not_called_the_first():
    recipe = dataclasses.replace(RECIPE, budget=34)
    first = plan_port(recipe, tree_of(WORKER))
    assert isinstance(first, PortPlan) and first.part == "a"
    second = plan_port(recipe, after(tree_of(WORKER), first))
    assert isinstance(second, PortPlan) and second.part == "b"


def test_a_part_is_the_longest_that_fits():
    plans = [
        (budget, plan_port(dataclasses.replace(RECIPE, budget=budget), tree_of(MANY)))
        for budget in range(40, 80, 3)
    ]
    sizes = [(budget, len(p.methods), p.added) for budget, p in plans if isinstance(p, PortPlan)]
    assert len({count for _, count, _ in sizes}) > 5
    for budget, count, _ in sizes:
        assert all(added > budget for _, more, added in sizes if more > count)


def test_a_method_over_the_budget_is_refused():
    outcome = plan_port(dataclasses.replace(RECIPE, budget=5), tree_of(WORKER))
    assert isinstance(outcome, PortRefused) and [r.code for r in outcome.refusals] == ["MG115"]


def test_gate_before_port_is_refused():
    outcome = plan_gate(RECIPE, tree_of(WORKER))
    assert isinstance(outcome, GateRefused) and [r.code for r in outcome.refusals] == ["MG114"]


def test_cleanup_before_gate_is_refused():
    outcome = plan_cleanup(RECIPE, ported(tree_of(WORKER)))
    assert isinstance(outcome, CleanupRefused) and [r.code for r in outcome.refusals] == ["MG114"]


def test_legacy_that_changed_after_the_port_is_drift_and_names_the_method():
    tree = ported(tree_of(WORKER))
    moved_on = OverlayTree(tree, {"app/worker.py": WORKER.replace(b"+ 1", b"+ 2")})
    outcome = plan_gate(RECIPE, moved_on)
    assert isinstance(outcome, GateRefused)
    assert [(r.code, r.where) for r in outcome.refusals] == [("MG113", "first")]


def test_handler_that_changed_after_the_gate_is_drift_at_cleanup():
    tree = with_gates(ported(tree_of(WORKER)))
    handler = tree.files[RECIPE.target_file].replace(b"return 3", b"return 4")
    outcome = plan_cleanup(RECIPE, OverlayTree(tree, {RECIPE.target_file: handler}))
    assert isinstance(outcome, CleanupRefused)
    assert [(r.code, r.where) for r in outcome.refusals] == [("MG113", "_third")]


def test_cleanup_keeps_delegates_that_are_public_or_mentioned_elsewhere():
    for other, dropped in (("", ("_second", "_third")), ("worker._third()\n", ("_second",))):
        tree = with_gates(ported(tree_of(WORKER, app__other=other)))
        outcome = plan_cleanup(RECIPE, tree)
        assert isinstance(outcome, CleanupPlan)
        assert outcome.dropped == dropped
        assert dict(outcome.kept)["first"] == "public"
    assert dict(outcome.kept)["_third"] == "app/other.py:1"


def test_cleanup_keeps_a_delegate_that_the_handler_itself_calls():
    recipe = dataclasses.replace(RECIPE, siblings="worker")
    outcome = plan_cleanup(recipe, with_gates(ported(tree_of(WORKER), recipe), recipe))
    assert isinstance(outcome, CleanupPlan)
    assert outcome.dropped == ("_third",) and dict(outcome.kept)["_second"].startswith(RECIPE.target_file)


def test_a_name_that_the_gate_needs_and_the_module_has_is_refused():
    worker = WORKER.replace(b"class Worker:", b"Gate = 1\n\n\nclass Worker:", 1)
    outcome = plan_gate(RECIPE, ported(tree_of(worker)))
    assert isinstance(outcome, GateRefused) and [r.code for r in outcome.refusals] == ["MG106"]


def test_a_gate_keeps_the_first_lines_of_a_file_first():
    head = b"#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n"
    tree = with_gates(ported(tree_of(head + WORKER)))
    assert tree.files[RECIPE.source_file].startswith(head + b"from app.parts.cache import CacheManager\n")


def test_effects_are_inferred_and_a_recipe_may_declare_them():
    tree = ported(tree_of(WORKER))
    outcome = plan_gate(RECIPE, tree)
    assert isinstance(outcome, GatePlan)
    assert dict(outcome.effects) == {"first": "Isolated", "_second": "Pure", "_third": "Pure"}
    declared = dataclasses.replace(RECIPE, effects=(("first", "pure"), ("_third", "skip: asks a clock")))
    outcome = plan_gate(declared, tree)
    assert isinstance(outcome, GatePlan)
    assert dict(outcome.effects) == {"first": "Pure", "_second": "Pure", "_third": "Skip"}
    assert b"\"_third\": Skip('asks a clock')," in outcome.changes[0].after  # type: ignore[operator]


def test_classes_whose_attributes_the_methods_set_are_named_to_the_gate():
    outcome = plan_gate(dataclasses.replace(RECIPE, shared=("app.state.Board",)), ported(tree_of(WORKER)))
    assert isinstance(outcome, GatePlan)
    assert b"shared=('app.state.Board',)," in outcome.changes[0].after  # type: ignore[operator]


def test_callables_of_the_caller_are_named_to_the_gate():
    outcome = plan_gate(dataclasses.replace(RECIPE, callbacks=("_on_end",)), ported(tree_of(WORKER)))
    assert isinstance(outcome, GatePlan)
    assert b"callbacks=('_on_end',)," in outcome.changes[0].after  # type: ignore[operator]


def test_parts_of_a_gate_stand_in_it_by_their_names_in_the_handler(tmp_path: Path):
    recipe, root = gated("parts", tmp_path)
    assert (root / "app/worker.py").read_bytes() == (GOLDEN / "parts/gated/app/worker.py").read_bytes()
    before = printed("parts", GOLDEN / "parts/before")
    for part in ("STATS", "LOADS"):
        assert printed("parts", root, **{f"{recipe.prefix}_{part}_NATIVE": "1"}) == before
    handler = root / "app/parts/cache.py"
    handler.write_bytes(handler.read_bytes().replace(b"pop(uuid, 0)", b"pop(uuid, 0) * 10"))
    assert printed("parts", root, APP_CACHE_STATS_NATIVE="1") == before
    assert printed("parts", root, APP_CACHE_LOADS_NATIVE="1") == before.replace("3,", "30,")
    assert printed("parts", root, APP_CACHE_NATIVE="1", APP_CACHE_LOADS_NATIVE="0") == before


def test_entries_of_a_gate_about_methods_that_do_not_move_are_errors():
    tree = ported(tree_of(WORKER))
    declared = dataclasses.replace(RECIPE, effects=(("frist", "pure"),), parts=(("A", ("_second", "run")),))
    with pytest.raises(MigrationError) as caught:
        plan_gate(declared, tree)
    assert caught.value.code == "MG401"
    said = "gate.effects.frist: frist is no method that moves, did you mean first?; gate.parts.A: run is no method"
    assert said in str(caught.value)
