"""A class written by hand between the worker and its handler: stubs, gates and delegates call it."""

from __future__ import annotations

import dataclasses

import pytest

from migration.code.tree import OverlayTree
from migration.errors import MigrationError, Refusal
from migration.inverse.commute import Commute, commute
from migration.inverse.inline import InlinePlan, plan_inline
from migration.inverse.replay import plan_replay
from migration.move.cut import CutClean, CutPlan, CutRefused, plan_cut
from migration.phases.cleanup import CleanupClean, CleanupPlan, CleanupRefused, plan_cleanup
from migration.phases.gate import GatePlan, GateRefused, plan_gate
from migration.phases.port import PortPlan, plan_port
from migration.proofs.record import dumps, loads, record, record_cleanup, record_gate, record_port
from migration.proofs.verify import Verified, verify
from migration.recipe import Recipe, parse_recipe
from migration.recipe_text import recipe_text

from .request_slice import BACKENDS, TEXT, WORKER
from .support import DictTree, codes, planned, result, tree_of, worker_source

ROUTED = parse_recipe(TEXT + '\n[gate]\nroute = "app.native:Native"\n', "cache.toml")
NATIVE = """\
from app.parts.cache import CacheManager


class Native:
    def __init__(self, worker):
        self.handler = CacheManager.for_worker(worker)

    @classmethod
    def for_worker(cls, worker):
        return cls(worker)

    def admit(self, uuid, wanted):
        return self.handler.admit(uuid, wanted)

    def room(self):
        return self.handler.room()
"""
FILES = {"app__backends": BACKENDS, "app__native": NATIVE}
TREE = tree_of(WORKER, **FILES)


def after(tree: OverlayTree | DictTree, plan: CutPlan | PortPlan | GatePlan | CleanupPlan) -> OverlayTree:
    return OverlayTree(tree, {change.path: change.after for change in plan.changes})


def in_phases(recipe: Recipe, tree: DictTree = TREE) -> tuple[OverlayTree, OverlayTree, OverlayTree]:
    port = plan_port(recipe, tree)
    assert isinstance(port, PortPlan), port
    ported = after(tree, port)
    gate = plan_gate(recipe, ported)
    assert isinstance(gate, GatePlan), gate
    gated = after(ported, gate)
    clean = plan_cleanup(recipe, gated)
    assert isinstance(clean, CleanupPlan), clean
    return ported, gated, after(gated, clean)


def test_stubs_call_the_route():
    plan = plan_cut(ROUTED, TREE)
    assert isinstance(plan, CutPlan), plan
    worker = result(plan, ROUTED.source_file)
    assert "from app.native import Native\n" in worker and "CacheManager" not in worker
    assert "return Native.for_worker(self).admit(uuid, wanted)" in worker
    landed = after(TREE, plan)
    assert isinstance(plan_cut(ROUTED, landed), CutClean)
    own = record(plan)
    assert loads(dumps(own), "x") == own
    (verdict,) = verify(landed, [own])
    assert isinstance(verdict, Verified) and verdict.original == WORKER
    back = plan_inline(landed, own)
    assert isinstance(back, InlinePlan) and back.exact


def test_gates_and_delegates_call_it_and_the_handler_is_what_is_verified():
    ported, gated, cleaned = in_phases(ROUTED)
    text = gated.read("app/worker.py").decode()
    assert '"CACHE",\n\tNative,\n' in text and "from app.native import Native\n" in text
    assert "CacheManager" not in text
    assert "return Native.for_worker(self).room()" in cleaned.read("app/worker.py").decode()
    assert isinstance(plan_cleanup(ROUTED, cleaned), CleanupClean)
    for tree, own, original in (
        (ported, record_port(plan_port(ROUTED, TREE), ported), WORKER),
        (gated, record_gate(plan_gate(ROUTED, ported), ported), WORKER),
        (cleaned, record_cleanup(plan_cleanup(ROUTED, gated), gated), text.encode()),
    ):
        assert own.recipe.route == "app.native:Native" and loads(dumps(own), "x") == own
        (verdict,) = verify(tree, [own])
        assert isinstance(verdict, Verified) and verdict.original == original, verdict


def test_the_handler_can_be_ported_before_there_is_a_route():
    assert isinstance(plan_port(ROUTED, tree_of(WORKER, app__backends=BACKENDS)), PortPlan)


def test_a_route_may_have_methods_from_the_handler():
    """What needs no plan goes to the handler itself."""
    native = NATIVE[: NATIVE.index("    def room")].replace("class Native:", "class Native(CacheManager):")
    assert isinstance(plan_cut(ROUTED, tree_of(WORKER, app__backends=BACKENDS, app__native=native)), CutPlan)


PROPERTY = "    @property\n    def for_worker(worker)"
ADMIT = "    def admit(self, uuid, wanted):"


@pytest.mark.parametrize(
    ("old", "new", "code", "where", "message"),
    [
        (
            "class Native",
            "class Natives",
            "MG124",
            "app.native:Native",
            "has no class Native, did you mean Natives?",
        ),
        ("def admit", "def admitt", "MG124", "Native.admit", "it is not there, did you mean admitt?"),
        (
            ADMIT,
            "    def admit(self, uuid):",
            "MG124",
            "Native.admit",
            "it is `def admit(self, uuid)`, the handler",
        ),
        (
            ADMIT,
            "    def admit(self, uuid, n):",
            "MG124",
            "Native.admit",
            "has `def admit(self, uuid, wanted)`",
        ),
        (ADMIT, "    def admit(self, uuid, wanted=1):", "MG124", "Native.admit", "wanted=1"),
        (ADMIT, "    def admit(self, uuid, *, wanted):", "MG124", "Native.admit", "*, wanted"),
        (ADMIT, "    def admit(self, uuid, wanted, /):", "MG124", "Native.admit", "wanted, /"),
        (ADMIT, "    def admit(self, uuid, wanted, **more):", "MG124", "Native.admit", "**more"),
        (ADMIT, f"    @classmethod\n{ADMIT}", "MG124", "Native.admit", "@classmethod def admit"),
        (ADMIT, ADMIT.replace("def", "async def"), "MG124", "Native.admit", "async def admit"),
        ("def for_worker", "def of_worker", "MG124", "Native.for_worker", "it is not there"),
        (
            "    @classmethod\n",
            "",
            "MG124",
            "Native.for_worker",
            "no class method that takes the worker alone",
        ),
        ("for_worker(cls, worker)", "for_worker(cls, worker, more)", "MG124", "Native.for_worker", "alone"),
        ("for_worker(cls, worker)", "for_worker(cls)", "MG124", "Native.for_worker", "alone"),
        (
            "    @classmethod\n    def for_worker(cls, worker)",
            PROPERTY,
            "MG124",
            "Native.for_worker",
            "alone",
        ),
        ("def for_worker", "async def for_worker", "MG124", "Native.for_worker", "alone"),
        (
            "from app.parts",
            "import app.worker\nfrom app.parts",
            "MG105",
            "app.native:Native",
            "imports app.worker",
        ),
    ],
)
def test_a_route_that_could_not_be_called_is_refused(old: str, new: str, code: str, where: str, message: str):
    assert NATIVE.count(old) > 0
    files = {**FILES, "app__native": NATIVE.replace(old, new, 1)}
    tree = tree_of(WORKER, **files)
    port = plan_port(ROUTED, tree)
    assert isinstance(port, PortPlan)
    for outcome in (plan_cut(ROUTED, tree), plan_gate(ROUTED, after(tree, port))):
        assert isinstance(outcome, CutRefused | GateRefused), outcome
        (found,) = outcome.refusals
        assert (found.code, found.where) == (code, where) and message in found.message, found


def test_a_fault_in_the_route_has_its_line():
    outcome = plan_cut(ROUTED, tree_of(WORKER, **{**FILES, "app__native": NATIVE.replace("wanted):", "n):")}))
    assert isinstance(outcome, CutRefused) and outcome.refusals[0].line == 12


def test_no_route_in_the_repository_is_refused():
    outcome = plan_cut(ROUTED, tree_of(WORKER, app__backends=BACKENDS))
    assert isinstance(outcome, CutRefused)
    assert outcome.refusals == (
        Refusal("MG124", "app.native:Native", 0, "app.native is not in the repository"),
    )


def test_after_the_gate_only_what_is_still_called_must_be_there():
    _, gated, _ = in_phases(ROUTED, tree_of(WORKER.replace(b"room", b"_room"), **_private()))
    left = _private()["app__native"].replace("    def _room(self):\n", "    def old(self):\n")
    narrow = OverlayTree(gated, {"app/native.py": left.encode()})
    clean = plan_cleanup(ROUTED, narrow)
    assert isinstance(clean, CleanupPlan) and clean.dropped == ("_room",)
    (verdict,) = verify(after(narrow, clean), [record_cleanup(clean, narrow)])
    assert isinstance(verdict, Verified), verdict
    calls = left.replace("self.handler._room", "self.worker._room")
    clean = plan_cleanup(ROUTED, OverlayTree(gated, {"app/native.py": calls.encode()}))
    assert isinstance(clean, CleanupRefused)  # the delegate stays, and calls what is not there
    assert [(r.code, r.where) for r in clean.refusals] == [("MG124", "Native._room")]


def _private() -> dict[str, str]:
    return {**FILES, "app__native": NATIVE.replace("room", "_room")}


def test_the_name_of_the_route_must_be_free_in_the_worker():
    worker = WORKER.replace(b"class Worker", b"class Native:\n\tpass\n\n\nclass Worker", 1)
    assert codes(plan_cut(ROUTED, tree_of(worker, **FILES))) == ["MG106"]
    port = plan_port(dataclasses.replace(ROUTED, route=""), tree_of(worker, **FILES))
    assert isinstance(port, PortPlan)
    gate = plan_gate(ROUTED, after(tree_of(worker, **FILES), port))
    assert isinstance(gate, GateRefused) and [r.code for r in gate.refusals] == ["MG106"]


def test_a_parameter_must_not_hide_it():
    worker = WORKER.replace(b"uuid", b"Native")
    assert "MG019" in codes(plan_cut(ROUTED, tree_of(worker, **FILES)))


def test_a_static_method_is_called_on_the_class():
    worker = worker_source("@staticmethod\ndef size(n, unit=4):\n    return n * unit\n")
    recipe = dataclasses.replace(ROUTED, rewrites=())
    route = "class Native:\n    @staticmethod\n    def size(n, unit=4):\n        return n\n"
    plan = planned(worker, recipe, app__native=route)
    assert "return Native.size(n, unit)" in result(plan, recipe.source_file)
    assert codes(plan_cut(recipe, tree_of(worker, app__native=route.replace("    @staticmethod\n", "")))) == [
        "MG124"
    ]


def test_replay_and_commute_carry_it():
    bodies = {d.key: d.body for d in plan_cut(ROUTED, TREE).proof.details}
    replay = plan_replay(ROUTED, bodies, TREE)
    assert isinstance(replay.outcome, CutPlan) and "Native" in result(replay.outcome, ROUTED.source_file)
    other = parse_recipe(
        'schema = 1\nname = "rest"\n[source]\nfile = "app/worker.py"\nclass = "Worker"\nsection = "Rest"\n'
        '[target]\nfile = "app/parts/rest.py"\nclass = "Rest"\n',
        "rest.toml",
    )
    found = commute(ROUTED, other, TREE)
    assert isinstance(found, Commute), found


def test_it_is_written_down():
    assert parse_recipe(recipe_text(ROUTED), "x") == ROUTED


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ('route = "app.native"', "line 51: gate.route: 'app.native' must be `package.module:Name`"),
        (
            'route = "app.native:Outer.Inner"',
            "gate.route: Outer.Inner must be a class at the top of its module",
        ),
        ('route = "app.native:CacheManager"', "gate.route: CacheManager is the name of the handler"),
        ('route = "app.native:Worker"', "gate.route: Worker is the name of the worker"),
        ('routes = "app.native:Native"', "line 51: gate.routes: unknown entry, did you mean route?"),
    ],
)
def test_mistakes_have_their_line(value: str, problem: str):
    with pytest.raises(MigrationError) as caught:
        parse_recipe(f"{TEXT}\n[gate]\n{value}\n", "cache.toml")
    assert caught.value.code == "MG401" and problem in str(caught.value)
