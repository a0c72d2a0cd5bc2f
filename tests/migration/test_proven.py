"""Tests of attributes that are proved to be constant, and those that are not."""

from __future__ import annotations

import dataclasses

import pytest

from migration.code.source import Source
from migration.code.tree import DiskTree, OverlayTree
from migration.declare.plan import DeclarePlan, Wanted, plan_declare
from migration.errors import MigrationError
from migration.move.cut import CutPlan, CutRefused, plan_cut
from migration.move.proof import Proof
from migration.proofs.record import dumps, loads, record
from migration.proofs.verify import Broken, Verified, verify
from migration.recipe import HasattrSpec, Recipe

from .golden_cases import GOLDEN, cut
from .support import RECIPE, codes, planned, result, tree_of, worker_source
from .test_declared import proved_again


def asking(*apply: str, constant: tuple[str, ...] = ()) -> Recipe:
    return dataclasses.replace(RECIPE, hasattr=HasattrSpec(apply, constant))


def moved(body: str, recipe: Recipe, tail: str = "") -> str:
    plan = planned(worker_source(f"def use(self):\n    return {body}", tail=tail), recipe)
    text = result(plan, RECIPE.target_file)
    return text.partition("return ")[2].rpartition("return ")[2].strip()


def test_only_the_verdicts_that_are_asked_for_are_applied():
    body = 'hasattr(self, "name"), hasattr(self, "gone")'
    assert moved(body, asking("always")) == 'True, hasattr(self._worker, "gone")'
    assert moved(body, asking("never")) == 'hasattr(self._worker, "name"), False'
    assert moved(body, asking("always", "never")) == "True, False"
    assert moved(body, RECIPE) == 'hasattr(self._worker, "name"), hasattr(self._worker, "gone")'


def test_what_is_not_proved_is_left_unless_the_recipe_insists():
    tail = "\n    # ============ Rest ============\n\n    def rest(self):\n        self.lazy = 1\n"
    body = 'hasattr(self, "lazy")'
    assert moved(body, asking("always", "never"), tail) == 'hasattr(self._worker, "lazy")'
    worker = worker_source(f"def use(self):\n    return {body}", tail=tail)
    outcome = plan_cut(asking(constant=("lazy",)), tree_of(worker))
    assert codes(outcome) == ["MG022"]
    assert "hasattr(self, 'lazy') is not proved to be constant" in outcome.refusals[0].message  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("other", "proved"),
    [
        ("def f(w):\n    del w.name\n", False),
        ("def f(w):\n    delattr(w, 'name')\n", False),
        ("class S(W):\n    def f(self):\n        del self.name\nfrom app.worker import Worker as W\n", False),
        ("def f(w):\n    print(w.name)\n", True),
    ],
)
def test_other_files_count(other: str, proved: bool):
    worker = worker_source('def use(self):\n    return hasattr(self, "name")')
    outcome = plan_cut(asking(constant=("name",)), tree_of(worker, app__other=other))
    assert isinstance(outcome, CutPlan) if proved else codes(outcome) == ["MG022"]


def test_a_call_over_several_lines_and_a_default_that_is_no_constant_are_refused():
    worker = worker_source(
        'def use(self):\n    return hasattr(\n        self, "name"\n    ), getattr(self, "no", [])'
    )
    outcome = plan_cut(asking(constant=("name", "no")), tree_of(worker))
    assert codes(outcome) == ["MG022", "MG022"]


def test_an_attribute_that_nobody_asks_for_is_an_error():
    worker = worker_source('def use(self):\n    return hasattr(self, "name")')
    with pytest.raises(MigrationError) as error:
        plan_cut(asking(constant=("nane",)), tree_of(worker))
    assert error.value.code == "MG401" and "nane, did you mean name?" in str(error.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if True and not(True)", "if True and not(False)"),
        ("if True and not(True)", 'if hasattr(self._pools, "pool") and not(True)'),
        ("(1 if False else 2)", "(1 if True else 2)"),
        ("self._host.size", "self._host.sizes"),
        ("{'no'}", "{'yes'}"),
        ('if not hasattr(self._host, "lazy")', "if not True"),
    ],
)
def test_a_fault_in_what_was_proved_is_found(old: str, new: str):
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    assert isinstance(proved_again("constants", lambda text: text), Proof)
    found = proved_again("constants", change)
    assert isinstance(found, tuple) and "MG202" in {refusal.code for refusal in found}


def test_verify_asks_the_prover_again():
    plan = cut("constants")
    assert isinstance(plan, CutPlan)
    assert ("hasattr(self, 'pool')", "True (proved)", 2) in plan.proof.declared
    proof = loads(dumps(record(plan)), "x")
    assert proof.recipe == plan.recipe
    after = {c.path: c.after for c in plan.changes if c.after is not None}
    tree = OverlayTree(DiskTree(GOLDEN / "constants" / "before"), after)
    (verdict,) = verify(tree, [proof])
    assert isinstance(verdict, Verified)
    (verdict,) = verify(OverlayTree(tree, {"app/other.py": b"def f(w):\n    del w.pool, w.gone\n"}), [proof])
    assert isinstance(verdict, Broken)


# Optional: declared before it moves

LAZY = 'def use(self):\n    if not hasattr(self, "lazy"):\n        self.lazy = 1\n    return self.lazy'


def optional(*names: str) -> Recipe:
    return dataclasses.replace(RECIPE, hasattr=HasattrSpec(optional=names))


def test_an_optional_attribute_that_is_not_declared_refuses_the_cut_and_says_what_to_run():
    outcome = plan_cut(optional("lazy"), tree_of(worker_source(LAZY)))
    assert codes(outcome) == ["MG122"]
    assert isinstance(outcome, CutRefused)
    assert "`migrate declare cache`" in outcome.refusals[0].message and outcome.refusals[0].line == 8
    assert "commit it" in outcome.refusals[0].way_out


def test_a_declared_one_moves_as_it_is():
    worker = worker_source(LAZY)
    tree = tree_of(worker)
    declared = plan_declare(Source("app/worker.py", worker), "Worker", tree, [Wanted("lazy")])
    assert isinstance(declared, DeclarePlan) and declared.change.after is not None
    plan = planned(declared.change.after, optional("lazy"))
    text = result(plan, RECIPE.target_file)
    assert "if self._worker.lazy is None:\n            self._worker.lazy = 1\n" in text
    assert plan.proof.declared == ()


def test_tests_that_stay_refuse_nothing_and_an_unknown_name_is_an_error():
    tail = '\n    # ============ Rest ============\n\n    def rest(self):\n        return getattr(self, "lazy", 0)\n'
    worker = worker_source("def use(self):\n    self.lazy = 1", tail=tail)
    assert isinstance(plan_cut(optional("lazy", "name"), tree_of(worker)), CutPlan)
    with pytest.raises(MigrationError) as error:
        plan_cut(optional("lasy"), tree_of(worker))
    assert error.value.code == "MG401"
    assert "hasattr: nothing asks for lasy or declares it, did you mean lazy?" in str(error.value)


# Accepted obstacles

DYNAMIC = "def use(self, key):\n    self.put(key)\n    return hasattr(self, 'gone')"
PUT = "\n    # ============ Rest ============\n\n    def put(self, key):\n        setattr(self, key, 1)\n"


def test_an_accepted_obstacle_lets_a_constant_be_one_and_the_proof_says_so():
    worker = worker_source(DYNAMIC, tail=PUT)
    assert codes(plan_cut(asking(constant=("gone",)), tree_of(worker))) == ["MG022"]
    names = ("Worker.put sets attributes under a computed name", "Worker.put passes self on in line 99")
    reasons = tuple((name, "only known keys") for name in names)
    spec = HasattrSpec(constant=("gone",), accept=reasons)
    plan = planned(worker, dataclasses.replace(RECIPE, hasattr=spec))
    assert plan.proof.declared == (("hasattr(self, 'gone')", "False (accepted)", 1),)
    proof = loads(dumps(record(plan)), "x")
    assert proof.recipe == plan.recipe
    less = dataclasses.replace(RECIPE, hasattr=dataclasses.replace(spec, accept=(("Worker.put", "no"),)))
    assert codes(plan_cut(less, tree_of(worker))) == ["MG022"]


# Capabilities

POOLED = "from app.worker import Worker\nclass Pooled(Worker):\n    def drain(self):\n        pass\n"
ASKS = "def use(self):\n    return hasattr(self, 'drain')"


def capable(**more: tuple[tuple[str, str], ...]) -> Recipe:
    return dataclasses.replace(RECIPE, hasattr=HasattrSpec(capability=("drain",), **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "other", "reason"),
    [
        (ASKS, POOLED.replace("    def drain(self):\n        pass", "    drain = 1"), "not a plain method"),
        (
            ASKS,
            f"{POOLED}\ndef patch(w):\n    w.drain = print\n",
            "also made by w.drain (app/pooled.py:7)",
        ),
        (
            ASKS,
            POOLED.replace("    def drain", "    @property\n    def drain"),
            "not a plain method wherever it is made: Pooled (app/pooled.py:4)",
        ),
        (ASKS, "", "nothing makes it"),
        (ASKS.replace("'drain')", "\n 'drain')"), POOLED, "spread over several lines"),
        (
            ASKS.replace("hasattr(self, 'drain')", "getattr(self, 'drain', None)"),
            POOLED,
            "a getattr gives more than",
        ),
        (f"{ASKS}, leak(self)", POOLED, "Worker.use passes self on in line 8"),
    ],
)
def test_what_is_no_capability_is_refused(body: str, other: str, reason: str):
    outcome = plan_cut(capable(), tree_of(worker_source(body), app__pooled=other))
    assert isinstance(outcome, CutRefused) and codes(outcome) == ["MG123"]
    assert reason in outcome.refusals[0].message, outcome.refusals[0].message


def test_an_accepted_obstacle_lets_a_capability_be_one():
    worker = worker_source(f"{ASKS}, leak(self)")
    recipe = capable(accept=(("Worker.use passes self on", "leak only prints"),))
    plan = planned(worker, recipe, app__pooled=POOLED)
    after = "isinstance(self, HasDrain) (accepted)"
    assert plan.proof.declared == (("hasattr(self, 'drain')", after, 1),)


@pytest.mark.parametrize(
    ("body", "head", "where"),
    [
        (ASKS, "class HasDrain: ...\n", "app/worker.py"),
        (ASKS, "from typing import List as HasDrain\n", "app/worker.py"),
        ("def use(self, HasDrain=1):\n    return hasattr(self, 'drain')", "", "use"),
        ("def use(self):\n    for HasDrain in 'ab':\n        return hasattr(self, 'drain')", "", "use"),
    ],
)
def test_a_name_that_is_taken_is_refused(body: str, head: str, where: str):
    outcome = plan_cut(capable(), tree_of(worker_source(body, head=head), app__pooled=POOLED))
    assert isinstance(outcome, CutRefused)
    assert [(r.code, r.where) for r in outcome.refusals] == [("MG019", where)]


def test_isinstance_under_another_meaning_proves_nothing():
    worker = worker_source("def use(self, isinstance):\n    return hasattr(self, 'drain')")
    assert codes(plan_cut(capable(), tree_of(worker, app__pooled=POOLED))) == ["MG123"]


def test_a_capability_that_nobody_asks_for_is_an_error():
    with pytest.raises(MigrationError, match="no moved method asks for drain, did you mean drains"):
        worker = worker_source("def use(self):\n    return hasattr(self, 'drains')")
        plan_cut(capable(), tree_of(worker, app__pooled=POOLED))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("isinstance(self._host, HasDrain)", 'hasattr(self._host, "drain")'),
        ("isinstance(self._host, HasDrain)", "isinstance(self._host, HasEvict)"),
        ("isinstance(self._host, HasDrain)", "isinstance(self._host, WorkerHost)"),
        ("@runtime_checkable\nclass HasDrain", "class HasDrain"),
        ("class HasDrain(Protocol)", "class HasDrain(Pages, Protocol)"),
        ("    def drain(self, *args: Any, **kwargs: Any) -> Any: ...\n", "    def drains(self): ...\n"),
        ("    def drain(self, *args", "    extra: int\n\n    def drain(self, *args"),
    ],
)
def test_a_fault_in_a_capability_is_found(old: str, new: str):
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    assert isinstance(proved_again("capabilities", lambda text: text), Proof)
    found = proved_again("capabilities", change)
    assert isinstance(found, tuple) and "MG202" in {refusal.code for refusal in found}


def test_verify_sees_a_class_that_makes_a_capability_something_else():
    plan = cut("capabilities")
    assert isinstance(plan, CutPlan)
    proof = loads(dumps(record(plan)), "x")
    after = {c.path: c.after for c in plan.changes if c.after is not None}
    tree = OverlayTree(DiskTree(GOLDEN / "capabilities" / "before"), after)
    (verdict,) = verify(tree, [proof])
    assert isinstance(verdict, Verified)
    (verdict,) = verify(OverlayTree(tree, {"app/other.py": b"def f(w):\n    w.drain = 1\n"}), [proof])
    assert isinstance(verdict, Broken) and "MG123" in verdict.reasons[0]
