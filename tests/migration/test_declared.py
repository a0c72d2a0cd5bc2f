"""What a recipe declares about expressions: handles that are other objects, and rewrites."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from migration.code.source import read_source
from migration.code.structure import outline
from migration.code.tree import DiskTree, OverlayTree
from migration.errors import MigrationError, Refusal
from migration.inverse.inline import InlinePlan, plan_inline
from migration.move.cut import CutPlan, module_names, movings, plan_cut, select
from migration.move.proof import Proof, Result, prove
from migration.move.proven import proven_calls
from migration.phases.port import PortPlan, plan_port
from migration.proofs.record import record
from migration.recipe import HandleSpec, Recipe, RewriteSpec

from .golden_cases import GOLDEN, cut, recipe_of
from .support import RECIPE, codes, planned, result, tree_of, worker_source
from .test_cli import migrate


def proved_again(case: str, change: Callable[[str], str]) -> Proof | tuple[Refusal, ...]:
    """The proof of a golden cut after a change of its handler module."""
    plan = cut(case)
    assert isinstance(plan, CutPlan)
    recipe, tree = plan.recipe, DiskTree(GOLDEN / case / "before")
    before = read_source(recipe.source_file, tree.read(recipe.source_file) or b"")
    shape = outline(before, recipe.source_class)
    moved, _ = movings(recipe, tree, before, shape, select(shape, recipe), module_names(recipe, before))
    handler = change(result(plan, recipe.target_file))
    details = plan.proof.details
    after = Result(
        result(plan, recipe.source_file).encode(),
        handler.encode(),
        {d.moved_name: d.lazy_imports for d in details if d.lazy_imports},
        {d.moved_name: d.late_reads for d in details if d.late_reads},
        plan.proof.alias,
        plan.proof.imports_removed,
        proven_calls(recipe, before, shape, tree, {one.label for one in moved})[0],
    )
    return prove(recipe, before, moved, after)


def test_the_untouched_result_is_proved_and_says_what_was_declared():
    proof = proved_again("expressions", lambda text: text)
    assert isinstance(proof, Proof)
    assert proof.declared == (
        ('getattr(self, "limit", None)', "self._state.limit", 2),
        ('hasattr(self, "ranks")', "self._parallel.available", 2),
        ("self.__pool", "self._pool", 4),
        ("self._put_on_hold", "self._rebalancer.hold", 3),
        ("self.engine.view", "self._view", 15),
        ("self.shortcut", "self._view", 1),
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lambda: worker.engine.view", "lambda: worker.engine"),
        ("lambda: worker.engine.view", "(lambda kept: lambda: kept)(worker.engine.view)"),
        ("lambda: worker._Worker__pool", "lambda: worker.__pool"),
        ("Ranks(lambda: worker)", "Ranks(lambda: worker.engine)"),
        ("from app.backends import Ranks", "from app.others import Ranks"),
        ("state=worker", "state=worker.engine"),
        ("self._read_view = view", "self._read_view = lambda value=view(): value"),
        ("self._read_pool = pool", "self._read_pool = view"),
        ("return self._read_view()", "return self._read_pool()"),
        ("@property\n    def _view", "@functools.cached_property\n    def _view"),
        ("if this._parallel.available and", "if not this._parallel.available and"),
        ("if this._parallel.available and", 'if hasattr(this._state, "ranks") and'),
        ("this._rebalancer.hold(*names)", "this._rebalancer.hold(names)"),
        ("this._rebalancer.hold(*names)", "this._state._put_on_hold(*names)"),
        ("self._pool.append(2)", "self._view.append(2)"),
        ("self._state._Worker__pool = [1]", "self._pool = [1]"),
        ("del self._state._Worker__pool", "del self._pool"),
        ("limit = self._state.limit", "limit = self._state.limits"),
        ("count = lambda self: self.engine.view.pages", "count = lambda self: self._view.pages"),
    ],
)
def test_a_fault_in_what_was_declared_is_found(old: str, new: str):
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    found = proved_again("expressions", change)
    assert isinstance(found, tuple) and "MG202" in {refusal.code for refusal in found}


OTHER = HandleSpec("hold", "Hold", "Who holds back.", (), False, ("self.holder",))


def recipe_with(*rewrites: tuple[str, str], handles: tuple[HandleSpec, ...] = (OTHER,)) -> Recipe:
    specs = tuple(RewriteSpec(before, after) for before, after in rewrites)
    return dataclasses.replace(RECIPE, handles=(*handles, *RECIPE.handles), rewrites=specs)


WORKER = worker_source(
    """
def first(self, names):
    return self._put_on_hold(names), self.holder.count

def second(self):
    return (
        self
        .holder.count
    )

def third(self):
    if hasattr(
        self, "ranks"
    ):
        return self.name
"""
)


def test_a_rewrite_that_matches_nothing_is_an_error_with_what_is_near():
    with pytest.raises(MigrationError) as error:
        plan_cut(recipe_with(("self._put_sequences_on_hold", "self.hold.put")), tree_of(WORKER))
    assert error.value.code == "MG401"
    assert "self._put_sequences_on_hold, did you mean self._put_on_hold?" in str(error.value)


def test_a_rewrite_over_several_lines_is_refused_and_a_chain_is_left_to_the_host():
    rewrites = ("self._put_on_hold", "self.hold.put"), ('hasattr(self, "ranks")', "self.hold.any")
    outcome = plan_cut(recipe_with(*rewrites), tree_of(WORKER))
    assert codes(outcome) == ["MG018"]
    plan = planned(WORKER, recipe_with(rewrites[0]))
    handler = result(plan, RECIPE.target_file)
    assert "return self._hold.put(names), self._hold.count" in handler
    assert "            self._worker\n            .holder.count" in handler


def test_the_longest_chain_wins():
    worker = worker_source("def read(self):\n    return self.a.b.c, self.a.b, self.a.d, self.x")
    outer = HandleSpec("outer", "Outer", "A.", (), False, ("self.a",))
    inner = HandleSpec("inner", "Inner", "B.", (), False, ("self.a.b",))
    plan = planned(worker, recipe_with(handles=(outer, inner)))
    handler = result(plan, RECIPE.target_file)
    assert "return self._inner.c, self._inner, self._outer.d, self._worker.x" in handler


def test_the_parts_of_a_port_need_not_have_every_rewrite():
    lines = "\n".join(f"    x{n} = {n}" for n in range(20))
    worker = worker_source(
        f"def first(self):\n{lines}\n    return x1\n\ndef second(self):\n    return self._hold(1)"
    )
    recipe = dataclasses.replace(recipe_with(("self._hold", "self.hold.put")), budget=50)
    outcome = plan_port(recipe, tree_of(worker))
    assert isinstance(outcome, PortPlan) and outcome.part == "a" and outcome.left == ("second",)


def test_an_edit_beside_a_rewritten_expression_is_folded_back_with_it():
    plan = cut("expressions")
    assert isinstance(plan, CutPlan)
    recipe, base = plan.recipe, DiskTree(GOLDEN / "expressions" / "before")
    after = {c.path: c.after for c in plan.changes if c.after is not None}
    handler = after[recipe.target_file]
    old, new = b"return self._view.free_pages()", b"return 1 + self._view.free_pages()"
    assert handler.count(old) == 1
    tree = OverlayTree(base, after | {recipe.target_file: handler.replace(old, new)})
    outcome = plan_inline(tree, record(plan))
    assert isinstance(outcome, InlinePlan)
    (folded,) = (c.after for c in outcome.changes if c.path == recipe.source_file)
    original = base.read(recipe.source_file)
    assert original is not None
    old, new = b"return self.engine.view.free_pages()", b"return 1 + self.engine.view.free_pages()"
    assert folded == original.replace(old, new, 1)


def test_the_getters_are_no_names_for_moved_methods():
    worker = worker_source("def _read_hold(self):\n    return self.holder")
    assert codes(plan_cut(recipe_with(), tree_of(worker))) == ["MG019"]


def test_a_golden_recipe_survives_its_proof_file():
    from migration.proofs.record import dumps, loads

    plan = cut("expressions")
    assert isinstance(plan, CutPlan)
    assert loads(dumps(record(plan)), "x").recipe == recipe_of("expressions")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("PoolBackend(lambda: worker.pool)", "PoolBackend(lambda: worker.host)"),
        ("PoolBackend(lambda: worker.pool)", "worker.pool"),
        ("def free_pages(self) -> int", "def free_pages(self) -> str"),
        ("    pool: Any", "    pool: Any\n    more: Any"),
        ("self._gpu_kv.free_pages()", "self._gpu_kv.closed()"),
        ("self._host_kv.pages", "self._state.host.pages_"),
    ],
)
def test_a_fault_behind_a_given_protocol_is_found(old: str, new: str):
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    assert isinstance(proved_again("given", lambda text: text), Proof)
    found = proved_again("given", change)
    assert isinstance(found, tuple) and "MG202" in {refusal.code for refusal in found}


POOL = """
class Pool(Protocol):
    size: int
    @property
    def left(self) -> int: ...
    def take(self, uuid: str, n: int = ..., /, *, pin: bool, late: bool = ...) -> list[int]: ...
    def give(self, *uuids: str, **options: Any) -> None: ...
    callback: Callback
"""
USES = """
from collections.abc import Callable as Callback
"""


def with_pool(body: str, text: str = USES + POOL, **handle: str) -> list[str]:
    spec = HandleSpec("pool", "Pool", "Pages.", (), False, ("self.pages",), protocol_text=text, **handle)
    outcome = plan_cut(
        recipe_with(handles=(spec,)), tree_of(worker_source(f"def use(self, *a, **k):\n    {body}"))
    )
    return [] if isinstance(outcome, CutPlan) else [f"{r.code} {r.message}" for r in outcome.refusals]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("self.pages.size += self.pages.left", ""),
        ("self.pages.take('a', 1, pin=True)", ""),
        ("self.pages.take(*a, pin=True), self.pages.take('a', **k), self.pages.callback(1, x=2)", ""),
        ("self.pages.give(), self.pages.give('a', 'b', x=1)", ""),
        ("return self.pages.__class__, hasattr(self.pages, 'x'), self.pages", ""),
        ("self.pages.gone", "MG117 Pool has no gone"),
        ("self.pages.gone = 1", "MG117 Pool has no gone"),
        ("return getattr(self.pages, 'gone', 1)", "MG117 Pool has no gone"),
        ("self.pages.left = 1", "MG117 Pool.left is read-only"),
        ("del self.pages.take", "MG117 Pool.take is read-only"),
        ("self.pages.take(pin=True)", "MG118 Pool.take: uuid is not given"),
        ("self.pages.take('a')", "MG118 Pool.take: pin is not given"),
        (
            "self.pages.take('a', 1, 2, pin=True)",
            "MG118 Pool.take: takes 2 positional arguments, 3 are given",
        ),
        ("self.pages.take('a', n=1, pin=True)", "MG118 Pool.take: has no parameter n"),
        ("self.pages.take('a', pim=1, pin=True)", "MG118 Pool.take: has no parameter pim"),
    ],
)
def test_moved_code_must_fit_the_given_protocol(body: str, why: str):
    assert with_pool(body) == ([why] if why else [])


def test_an_adapter_does_not_answer_hasattr_for_the_object():
    assert with_pool("return hasattr(self.pages, 'x')", adapter="app.b:B") == [
        "MG117 Pool has no x, and hasattr() would ask the adapter"
    ]


def test_a_name_that_nothing_explains_is_an_error():
    with pytest.raises(MigrationError) as error:
        with_pool("self.pages.size", POOL)
    assert error.value.code == "MG527" and "nothing says what Callback is" in str(error.value)


@pytest.mark.parametrize("origin", ["app.gone:Pool", "app.worker:Pool"])
def test_a_protocol_that_is_not_there_is_an_error(origin: str):
    spec = HandleSpec("pool", "Pool", "Pages.", (), False, ("self.pages",), protocol_from=origin)
    with pytest.raises(MigrationError) as error:
        plan_cut(
            recipe_with(handles=(spec,)), tree_of(worker_source("def use(self):\n    return self.pages.x"))
        )
    assert error.value.code == "MG527"


def test_verify_shows_what_was_declared(tmp_path: Path):
    shutil.copytree(
        GOLDEN / "expressions" / "before", tmp_path / "tree", ignore=shutil.ignore_patterns("__pycache__")
    )
    recipe = str(GOLDEN / "expressions" / "slice.toml")
    cut_ = migrate("port", recipe, "--cut", "--repo", str(tmp_path / "tree"), "--allow-dirty")
    assert cut_.returncode == 0, cut_.stderr
    assert "declared rewrites" in cut_.stdout
    shown = migrate("verify", "--repo", str(tmp_path / "tree"))
    assert shown.returncode == 0, shown.stderr
    assert "declared: self._put_on_hold became self._rebalancer.hold 3x" in shown.stdout
