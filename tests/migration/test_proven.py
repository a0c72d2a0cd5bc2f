"""Tests of attributes that are proved to be constant, and those that are not."""

from __future__ import annotations

import dataclasses

import pytest

from migration.code.tree import DiskTree, OverlayTree
from migration.errors import MigrationError
from migration.move.cut import CutPlan, plan_cut
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
