"""Two slices of one class: gated side by side, landed in any order, verified, taken back."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from migration.code.flakes import flakes
from migration.code.tree import DiskTree, OverlayTree, Tree
from migration.inverse.commute import Commute, commute
from migration.move.cut import CutPlan, CutRefused, plan_cut
from migration.phases.cleanup import CleanupPlan, plan_cleanup
from migration.phases.gate import GatePlan, GateRefused, plan_gate
from migration.phases.port import PortPlan, PortRefused, plan_port
from migration.recipe import Recipe

from .support import RECIPE, exercised, tree_of
from .test_property import workers
from .two_golden import FILES, GOLDEN, RECIPES, contents, landed, orders

BEFORE = DiskTree(GOLDEN / "before")
PAGES, PLANS = RECIPES.values()
PRINTED = exercised(GOLDEN / "exercise.py", GOLDEN / "before")


def folder_of(name: str) -> dict[str, bytes | None]:
    return contents(DiskTree(GOLDEN / name))


def test_the_file_depends_on_what_has_landed_and_not_on_the_order():
    seen: dict[tuple[int, ...], dict[str, bytes | None]] = {}
    for order in orders((PAGES, PLANS)):
        for state, tree in landed(BEFORE, order):
            assert contents(tree) == seen.setdefault(state, contents(tree)), (state, order)
    assert seen[2, 2] == folder_of("gated")
    assert seen[3, 3] == folder_of("after")
    assert len(seen) == 15


def test_two_gates_import_what_they_need_once():
    worker = (GOLDEN / "gated/app/worker.py").read_bytes()
    assert worker.count(b"shadow.experiment") == 1
    assert not flakes(worker, "app/worker.py")


def test_what_is_left_is_both_cuts_less_the_delegate_that_nobody_calls():
    tree: Tree = BEFORE
    for recipe in (PLANS, PAGES):
        cut = plan_cut(recipe, tree)
        assert isinstance(cut, CutPlan), cut
        tree = OverlayTree(tree, {change.path: change.after for change in cut.changes})
    both = tree.read("app/worker.py")
    assert both is not None
    stub = b"\tdef _plan(self, wanted):\n\t\treturn Planner.for_worker(self)._plan(wanted)\n\n"
    assert both.count(stub) == 1
    assert both.replace(stub, b"") == folder_of("after")["app/worker.py"]


@pytest.mark.parametrize("pages", ["", "NATIVE", "COMPARE"])
@pytest.mark.parametrize("plans", ["", "NATIVE", "COMPARE"])
def test_every_pair_of_routes_answers_as_before(pages: str, plans: str, tmp_path: Path):
    routes = {f"APP_PAGES_{pages}": "1"} if pages else {}
    routes |= {f"APP_PLANS_{plans}": "1"} if plans else {}
    reports = {f"APP_{name}_REPORT": str(tmp_path / name) for name in ("PAGES", "PLANS")}
    assert exercised(GOLDEN / "exercise.py", GOLDEN / "gated", **routes, **reports) == PRINTED
    for name, route in (("PAGES", pages), ("PLANS", plans)):
        if route == "COMPARE":
            summary = json.loads((tmp_path / name).read_text().splitlines()[-1])
            compared = sum(count["compared"] for count in summary["methods"].values())
            assert summary["verdict"] == 0 and compared > 0, summary
    assert exercised(GOLDEN / "exercise.py", GOLDEN / "after") == PRINTED


def test_a_handler_behind_the_other_gate_is_what_the_native_route_asks(tmp_path: Path):
    tree = {path: data for path, data in folder_of("gated").items() if data is not None}
    tree["app/parts/pages.py"] = tree["app/parts/pages.py"].replace(b"tokens / 4", b"tokens / 2")
    for path, data in tree.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    (tmp_path / "app/__init__.py").touch()
    program = GOLDEN / "exercise.py"
    assert exercised(program, tmp_path, APP_PLANS_NATIVE="1") == PRINTED
    assert exercised(program, tmp_path, APP_PLANS_NATIVE="1", APP_PAGES_NATIVE="1") != PRINTED


def test_either_slice_may_be_cut_first():
    assert isinstance(commute(PAGES, PLANS, BEFORE), Commute)


def gated(tree: Tree, *recipes: Recipe) -> OverlayTree:
    for recipe in recipes:
        for plan in (plan_port, plan_gate):
            outcome = plan(recipe, tree)
            assert isinstance(outcome, PortPlan | GatePlan), outcome
            tree = OverlayTree(tree, {change.path: change.after for change in outcome.changes})
    assert isinstance(tree, OverlayTree)
    return tree


def edited(tree: Tree, old: bytes, new: bytes) -> Tree:
    data = tree.read("app/worker.py")
    assert data is not None and data.count(old) == 1
    return OverlayTree(tree, {"app/worker.py": data.replace(old, new)})


def test_a_banner_takes_neither_gates_nor_legacy_bodies_nor_delegates_of_another_slice():
    listed = dataclasses.replace(PAGES, section="", methods=("_pages", "share"), effects=())
    wanted = {"_plan", "_waves"}
    both = gated(BEFORE, listed)
    for tree in (both, after_cleanup(both, listed)):
        outcome = plan_port(PLANS, tree)
        assert isinstance(outcome, PortPlan), outcome
        assert set(outcome.methods) == wanted
        assert isinstance(gated(tree, PLANS), OverlayTree)


def after_cleanup(tree: Tree, recipe: Recipe) -> Tree:
    outcome = plan_cleanup(recipe, tree)
    assert isinstance(outcome, CleanupPlan), outcome
    return OverlayTree(tree, {change.path: change.after for change in outcome.changes})


def test_a_method_behind_another_gate_is_refused_where_the_recipe_names_it():
    tree = gated(BEFORE, PAGES)
    outcome = plan_port(dataclasses.replace(PLANS, section="", methods=("_plan", "_free")), tree)
    assert isinstance(outcome, PortRefused)
    (refusal,) = outcome.refusals
    assert refusal.code == "MG108" and "_free is behind _PAGES_GATE already" in refusal.message


@pytest.mark.parametrize(
    ("old", "new", "taken"),
    [
        (b"import json\n", b"import json\nfrom shadow.experiment import Gate\n", ""),
        (b"LIMIT = 8\n", b"from shadow.experiment import Gate\n\nMINE = Gate\nLIMIT = 8\n", ""),
        (b"import json\n", b"import json\nfrom shadow.experiment import Isolated as Gate\n", "Gate"),
        (b"import json\n", b"import json\nfrom other.experiment import Pure\n", "Pure"),
        (b"LIMIT = 8\n", b"LIMIT = 8\nIsolated = None\n", "Isolated"),
        (
            b"LIMIT = 8\n",
            b"LIMIT = 8\nif LIMIT:\n\tfrom shadow.experiment import Gate\n",
            "Gate",
        ),
        (b"LIMIT = 8\n", b"LIMIT = 8\n_PAGES_GATE = None\n", "_PAGES_GATE"),
    ],
)
def test_a_name_clashes_only_where_it_means_something_else(old: bytes, new: bytes, taken: str):
    used = b"LIMIT = 8\n", b"LIMIT = 8\nMINE = Gate\n"
    tree = edited(BEFORE, old, new)
    if not taken and b"MINE" not in new:
        tree = edited(tree, *used)
    port = plan_port(PAGES, tree)
    assert isinstance(port, PortPlan)
    ported = OverlayTree(tree, {change.path: change.after for change in port.changes})
    outcome = plan_gate(PAGES, ported)
    if taken:
        assert isinstance(outcome, GateRefused)
        assert [(r.code, r.message) for r in outcome.refusals] == [("MG106", taken)]
        return
    assert isinstance(outcome, GatePlan), outcome
    (change,) = outcome.changes
    assert change.after is not None and change.after.count(b"import Gate") == 1
    assert not flakes(change.after, change.path)
    cleaned = after_cleanup(OverlayTree(tree, {**files_of(ported), change.path: change.after}), PAGES)
    left = cleaned.read("app/worker.py")
    assert left is not None and b"from shadow.experiment import Gate\n" in left and b"Pure" not in left


def files_of(tree: Tree) -> dict[str, bytes | None]:
    return {path: tree.read(path) for path in FILES}


LISTED = (
    dataclasses.replace(RECIPE, section="", methods=("first", "second")),
    dataclasses.replace(
        RECIPE,
        name="other",
        section="",
        methods=("third", "fourth"),
        target_file="app/parts/other.py",
        handler_class="OtherManager",
    ),
)


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)
@given(source=workers())
def test_random_slices_of_one_class_come_to_the_same_file_in_any_order(source: str):
    try:
        compile(source, "worker", "exec")
    except SyntaxError:
        assume(False)
    # In the docstring of a handler "up" is a word, and a mention keeps an import.
    before = tree_of(source.replace("ceil as up", "ceil").replace("up(", "ceil(").encode())
    assume(not any(isinstance(plan_cut(recipe, before), CutRefused) for recipe in LISTED))
    seen: dict[tuple[int, ...], bytes | None] = {}
    for order in orders(LISTED)[::6]:
        for state, tree in landed(before, order):
            now = tree.read("app/worker.py")
            assert now == seen.setdefault(state, now), (state, order)
