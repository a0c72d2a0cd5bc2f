"""A class written by hand that the handler inherits from; and all of it together on the golden pool worker."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from migration.code.source import Source
from migration.code.structure import outline
from migration.code.tree import DiskTree, OverlayTree
from migration.errors import MigrationError
from migration.inverse.inline import InlinePlan, plan_inline
from migration.inverse.replay import plan_replay
from migration.move.cut import CutPlan, CutRefused, module_names, movings, plan_cut, select
from migration.move.proof import Proof, Result, prove
from migration.phases.gate import GatePlan, plan_gate
from migration.phases.port import PortPlan, PortRefused, plan_port
from migration.proofs.record import dumps, loads, record
from migration.proofs.verify import Broken, Verified, verify
from migration.recipe import parse_recipe
from migration.recipe_text import recipe_text

from .golden_cases import GOLDEN, apply, cut, recipe_of
from .request_slice import BACKENDS, TEXT, WORKER
from .support import DictTree, codes, result, tree_of

ROOT = Path(__file__).parents[2]
BASED = parse_recipe(
    TEXT.replace('siblings = "handler"', 'siblings = "handler"\nbase = "app.planner:Planner"'), "x.toml"
)
PLANNER = """\
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.parts.cache import GpuKvBackend, KvRequest


class Planner:
    _gpu_kv: "GpuKvBackend"

    if TYPE_CHECKING:
        def on(self, req: "KvRequest") -> "Planner": ...
        def room(self) -> int: ...

    def plan(self, req):
        return self.on(req).room()
"""


def tree_with(planner: str) -> DictTree:
    return tree_of(WORKER, app__backends=BACKENDS, app__planner=planner)


TREE = tree_with(PLANNER)
PLAN = plan_cut(BASED, TREE)
assert isinstance(PLAN, CutPlan), PLAN
HANDLER = result(PLAN, BASED.target_file)
AFTER = result(PLAN, BASED.source_file)


def test_the_handler_inherits_from_it():
    assert "class CacheManager(Planner):\n" in HANDLER
    assert "\nfrom app.planner import Planner\n" in HANDLER.partition("class ")[0]


def test_it_is_written_down_and_kept_in_the_proof_file():
    assert parse_recipe(recipe_text(BASED), "x") == BASED
    own = record(PLAN)
    assert loads(dumps(own), "x") == own and own.recipe.base == "app.planner:Planner"


def landed(planner: str = PLANNER) -> OverlayTree:
    files = {change.path: change.after for change in PLAN.changes}
    return OverlayTree(TREE, {**files, "app/planner.py": planner.encode()})


def test_inline_and_replay_carry_it():
    back = plan_inline(landed(), record(PLAN))
    assert isinstance(back, InlinePlan) and back.exact
    assert "app/planner.py" not in {change.path for change in back.changes}
    replay = plan_replay(BASED, {d.key: d.body for d in PLAN.proof.details}, TREE)
    assert isinstance(replay.outcome, CutPlan) and replay.outcome.changes == PLAN.changes


def test_an_edit_of_the_base_that_fits_keeps_the_proof_and_one_that_does_not_breaks_it():
    own = record(PLAN)
    (verdict,) = verify(landed(PLANNER.replace("room()", "room() + 1")), [own])
    assert isinstance(verdict, Verified)
    (verdict,) = verify(landed(PLANNER + "\n    def admit(self):\n        return 1\n"), [own])
    assert isinstance(verdict, Broken) and "defines admit too" in verdict.reasons[0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("class Planner:", "class Planer:", "app/planner.py has no class Planner, did you mean Planer?"),
        ("    def plan(", "    def admit(self):\n        return 1\n\n    def plan(", ":14 defines admit too"),
        ("    def plan(", "    async def room(self):\n        return 1\n\n    def plan(", "defines room too"),
        ("    def plan(", "    def __init__(self):\n        pass\n\n    def plan(", "defines __init__ too"),
        (
            "    def plan(",
            "    def for_worker(self):\n        pass\n\n    def plan(",
            "defines for_worker too",
        ),
        ("        return self", "        self._host_kv = 1\n        return self", ":15 defines _host_kv too"),
        ("    _gpu_kv: ", "    _gpu_kv = _bound_req = ", "defines _bound_req too"),
        ("    if TYPE_CHECKING:\n        def on", "    if True:\n        def on", "defines on too"),
        ("    if TYPE_CHECKING:\n", "    if TYPE_CHECKING:\n        pass\n    else:\n", "defines room too"),
        ("    _gpu_kv: ", "    for on in ():\n        pass\n    _gpu_kv: ", "defines on too"),
        (
            "class Planner:",
            "class Above:\n    def on(self):\n        pass\n\n\nclass Planner(Above):",
            "on too",
        ),
        (
            "class Planner:",
            "from app.more import More\n\n\nclass Planner(More):",
            "app/more.py:2 defines room too",
        ),
        ("class Planner:", "import dataclasses\n\n\n@dataclasses.dataclass\nclass Planner:", "__init__ too"),
        ("class Planner:", "from dataclasses import dataclass\n@dataclass()\nclass Planner:", "__init__ too"),
    ],
)
def test_a_base_that_does_not_fit_is_refused(old: str, new: str, message: str):
    assert old in PLANNER
    files = {"app__more": "class More:\n    def room(self):\n        pass\n"}
    tree = tree_of(WORKER, app__backends=BACKENDS, app__planner=PLANNER.replace(old, new, 1), **files)
    outcome, port = plan_cut(BASED, tree), plan_port(BASED, tree)
    assert isinstance(outcome, CutRefused) and isinstance(port, PortRefused)
    assert {refusal.code for refusal in outcome.refusals} == {"MG125"} == {r.code for r in port.refusals}
    assert any(message in refusal.message for refusal in outcome.refusals), outcome.refusals


def test_what_only_is_used_in_a_base_is_no_clash():
    more = "\n    def more(self, room):\n        admit = self._gpu_kv.free_pages() + room\n        return admit\n"
    assert isinstance(plan_cut(BASED, tree_with(PLANNER + more)), CutPlan)


def test_a_base_must_be_in_the_repository():
    outcome = plan_cut(BASED, tree_of(WORKER, app__backends=BACKENDS))
    assert isinstance(outcome, CutRefused)
    (refusal,) = outcome.refusals
    assert (refusal.code, refusal.message) == ("MG125", "app.planner is not in the repository")


@pytest.mark.parametrize("line", ["import app.worker", "from app.parts.cache import CacheManager"])
def test_a_base_may_import_neither_worker_nor_handler(line: str):
    assert codes(plan_cut(BASED, tree_with(f"{line}\n{PLANNER}"))) == ["MG105"]


def test_its_name_may_not_mean_two_things():
    worker = WORKER.replace(b"uuid: str, wanted", b"uuid: Planner, wanted")
    worker = worker.replace(b"class Worker", b"from app.other import Planner\n\n\nclass Worker", 1)
    files = {"app__backends": BACKENDS, "app__planner": PLANNER, "app__other": "class Planner: ..."}
    assert codes(plan_cut(BASED, tree_of(worker, **files))) == ["MG019"]
    named = dataclasses.replace(BASED, base="app.planner:GpuKvBackend")
    tree = tree_with(
        PLANNER.replace("class Planner", "class GpuKvBackend").replace("import GpuKv", "import Xpu")
    )
    assert codes(plan_cut(named, tree)) == ["MG019"]


def verdict(handler: str) -> Proof | tuple[object, ...]:
    source = Source(BASED.source_file, WORKER)
    shape = outline(source, "Worker")
    moved, _ = movings(BASED, TREE, source, shape, select(shape, BASED), module_names(BASED, source))
    return prove(BASED, source, moved, Result(AFTER.encode(), handler.encode(), {}, {}, "worker_module", ()))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("class CacheManager(Planner):", "class CacheManager:"),
        ("class CacheManager(Planner):", "class CacheManager(Planner, Protocol):"),
        ("class CacheManager(Planner):", "class CacheManager(Planner, metaclass=type):"),
        ("class CacheManager(Planner):", "@runtime_checkable\nclass CacheManager(Planner):"),
        ("from app.planner import Planner", "from app.planners import Planner"),
        ("from app.planner import Planner", "from app.planner import Planer as Planner"),
    ],
)
def test_a_fault_in_what_it_inherits_is_found(old: str, new: str):
    assert verdict(HANDLER) == PLAN.proof
    assert HANDLER.count(old) == 1
    found = verdict(HANDLER.replace(old, new))
    assert not isinstance(found, Proof) and "MG202" in {refusal.code for refusal in found}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ('base = "Planner"', "target.base: 'Planner' must be `package.module:Name`"),
        ('base = "app.planner:CacheManager"', "target.base: CacheManager is the name of the handler"),
        ('bas = "app.planner:Planner"', "target.bas: unknown entry, did you mean base?"),
    ],
)
def test_mistakes_have_their_line(value: str, problem: str):
    with pytest.raises(MigrationError) as caught:
        parse_recipe(TEXT.replace('siblings = "handler"', value), "cache.toml")
    assert caught.value.code == "MG401" and f"line 13: {problem}" in str(caught.value)


# The golden case has all of it: request, base and route.


def run(root: Path, program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-B", "-c", program],
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{ROOT}", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_plan_of_a_picture_touches_nothing(tmp_path: Path):
    outcome = cut("request")
    assert isinstance(outcome, CutPlan), outcome
    apply(outcome, GOLDEN / "request/before", tmp_path / "tree")
    program = """
from app.parts.pages import PageKeeper
from app.plans import picture
from app.worker import Worker

worker = Worker(4, 4, 1)
worker.admit("a", 2)
keeper = PageKeeper(gpu_kv=None, host_kv=None)
plan = keeper.plan_allocation(picture(worker, "b", 3))
print([step[:2] for step in plan.steps], plan.pages, plan.order, worker.order, vars(keeper))
"""
    assert run(tmp_path / "tree", program) == (
        "[('store', 'take'), ('device', 'give_back'), ('device', 'take')] (2, 3, 0) (('b', 3),) [('a', 2)] "
        "{'_gpu_kv': None, '_host_kv': None}\n"
    )


def test_the_comparison_goes_through_the_route(tmp_path: Path):
    """A gate that compares runs picture, plan and apply on its own view of the worker, and finds no difference."""
    root = tmp_path / "tree"
    shutil.copytree(GOLDEN / "request/before", root, ignore=shutil.ignore_patterns("__pycache__"))
    recipe = recipe_of("request")
    for plan in (plan_port, plan_gate):
        outcome = plan(recipe, DiskTree(root))
        assert isinstance(outcome, PortPlan | GatePlan), outcome
        for change in outcome.changes:
            (root / change.path).parent.mkdir(exist_ok=True)
            (root / change.path).write_bytes(change.after or b"")
    program = (GOLDEN / "request/exercise.py").read_text()
    program += "\nimport json\nfrom app.worker import _PAGES_GATE as gate\n"
    program += (
        "print(json.dumps([gate.verdict().value, [str(d) for d in gate.divergences], list(gate.faults)]))\n"
    )
    *printed, last = run(root, program, PAGES_COMPARE="1").splitlines()
    assert json.loads(last) == [0, [], []]
    assert printed == run(GOLDEN / "request/before", program.partition("\nimport json")[0]).splitlines()
    wrong = root / "app/plans.py"
    wrong.write_text(wrong.read_text().replace("worker.evicted = plan.evicted", "worker.evicted = 0"))
    *_, last = run(root, program, PAGES_COMPARE="1").splitlines()
    assert json.loads(last)[0] == 1
