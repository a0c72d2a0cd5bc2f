"""A handle that comes with each request: what the class then looks like, does, and what its proof sees."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migration.code.source import Source
from migration.code.structure import outline
from migration.code.tree import OverlayTree
from migration.errors import MigrationError
from migration.inverse.inline import InlinePlan, plan_inline
from migration.move.cut import CutPlan, module_names, movings, plan_cut, select
from migration.move.proof import Proof, Result, prove
from migration.proofs.record import dumps, loads, record
from migration.recipe import Recipe, parse_recipe

from .request_slice import BACKENDS, RECIPE, TEXT, WORKER
from .support import RECIPE as SMALL
from .support import DictTree, codes, result, tree_of
from .test_property import trace, workers

TREE = tree_of(WORKER, app__backends=BACKENDS)


def cut(recipe: Recipe = RECIPE, tree: DictTree = TREE) -> CutPlan:
    outcome = plan_cut(recipe, tree)
    assert isinstance(outcome, CutPlan), outcome
    return outcome


PLAN = cut()
HANDLER = result(PLAN, RECIPE.target_file)
AFTER = result(PLAN, RECIPE.source_file)


class Pages:
    def __init__(self, left: int) -> None:
        self.left = left

    def allocate_pages(self, uuid: str, n: int) -> list[int]:
        return [self.left] * n

    def release_pages(self, uuid: str) -> None:
        raise AssertionError

    def free_pages(self) -> int:
        return self.left


@pytest.fixture
def handler_class() -> Any:
    space: dict[str, Any] = {"__name__": "app.parts.cache"}
    exec(compile(HANDLER, "cache.py", "exec", dont_inherit=True), space)
    return space["CacheManager"]


def test_the_constructor_takes_what_the_recipe_says_and_nothing_of_the_request(handler_class: Any):
    assert str(inspect.signature(handler_class.__init__)) == (
        "(self, *, gpu_kv: 'GpuKvBackend', host_kv: 'HostKvBackend') -> 'None'"
    )
    with pytest.raises(TypeError, match="req"):
        handler_class(gpu_kv=Pages(1), host_kv=Pages(2), req=object())


def test_a_copy_is_bound_and_the_handler_stays_as_it_was(handler_class: Any):
    handler = handler_class(gpu_kv=Pages(5), host_kv=Pages(7))
    tight, wide = (handler.on(SimpleNamespace(watermark=kept)) for kept in (4, 0))
    assert (tight.room(), wide.room()) == (1, 5)
    assert (tight.admit("a", 2), wide.admit("a", 2)) == ([7, 7], [5, 5])
    assert type(tight) is handler_class and tight._gpu_kv is handler._gpu_kv
    assert vars(handler).keys() == {"_gpu_kv", "_host_kv"}
    assert inspect.getdoc(handler.on) == "This handler for one object: a shallow copy, bound to it."


def test_a_handler_that_is_not_bound_says_so_in_one_line(handler_class: Any):
    with pytest.raises(RuntimeError, match=r"^CacheManager is not bound: call on\(req\) first$"):
        handler_class(gpu_kv=Pages(5), host_kv=Pages(7)).room()


def test_the_worker_is_bound_by_for_worker_so_that_stubs_stay_as_they_are():
    assert ").on(worker)" in HANDLER and "self._req.watermark" in HANDLER
    assert "return CacheManager.for_worker(self).admit(uuid, wanted)" in AFTER
    assert dict(PLAN.proof.renames) == {"req": 1}


def test_a_request_that_no_method_uses_is_there_all_the_same():
    worker = WORKER.replace(b" - self.watermark", b"")
    text = result(cut(tree=tree_of(worker, app__backends=BACKENDS)), RECIPE.target_file)
    assert "def on(self, req: KvRequest) -> Self:" in text and "class KvRequest(Protocol):" in text


@pytest.mark.parametrize("name", ["on", "_req", "_bound_req"])
def test_a_method_with_a_name_of_the_class_is_refused(name: str):
    worker = WORKER.replace(b"def room", f"def {name}".encode()).replace(
        b"self.room", f"self.{name}".encode()
    )
    assert codes(plan_cut(RECIPE, tree_of(worker, app__backends=BACKENDS))) == ["MG019"]


@pytest.mark.parametrize("line", ["from copy import copy", "from typing_extensions import Self"])
def test_a_name_that_the_class_needs_is_not_another_one(line: str):
    name = line.split()[-1]
    worker = WORKER.replace(b"uuid: str, wanted", f"uuid: {name}, wanted".encode())
    worker = worker.replace(b"class Worker", f"{line}\n\n\nclass Worker".encode(), 1)
    assert codes(plan_cut(RECIPE, tree_of(worker, app__backends=BACKENDS))) == ["MG019"]


def verdict(handler: str) -> Proof | tuple[Any, ...]:
    source = Source(RECIPE.source_file, WORKER)
    shape = outline(source, "Worker")
    moved, _ = movings(RECIPE, TREE, source, shape, select(shape, RECIPE), module_names(RECIPE, source))
    return prove(RECIPE, source, moved, Result(AFTER.encode(), handler.encode(), {}, {}, "worker_module", ()))


def test_the_untouched_result_is_proved():
    assert verdict(HANDLER) == PLAN.proof


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bound = copy.copy(self)", "bound = self"),
        ("bound = copy.copy(self)", "bound = copy.deepcopy(self)"),
        ("bound._bound_req = req", "bound._bound_req = copy.copy(req)"),
        ("return bound\n", "return self\n"),
        ("        if self._bound_req is None:", "        if not self._bound_req:"),
        ("            raise RuntimeError(", "            return RuntimeError("),
        ("        return self._bound_req\n", "        return copy.copy(self._bound_req)\n"),
        ("    @property\n    def _req", "    def _req"),
        ("    _bound_req: KvRequest | None = None\n", ""),
        (
            "    _bound_req: KvRequest | None = None\n",
            "    _bound_req: KvRequest | None = None\n    kept = 0\n",
        ),
        (").on(worker)", ")"),
        (").on(worker)", ").on(worker).on(worker)"),
        ("*, gpu_kv: GpuKvBackend", "*, req: KvRequest, gpu_kv: GpuKvBackend"),
        ("def on(self, req: KvRequest)", "def on(self, req: KvRequest | None)"),
        ("self._req.watermark", "self.watermark"),
        ("from app.backends import HostBackend", "from app.backend import HostBackend"),
        ("from app.backends import HostBackend", "from .backends import HostBackend"),
        ("import HostBackend, PoolBackend", "import HostBackend, Pool as PoolBackend"),
    ],
)
def test_a_fault_in_what_binds_the_request_is_found(old: str, new: str):
    assert HANDLER.count(old) == 1
    found = verdict(HANDLER.replace(old, new))
    assert not isinstance(found, Proof) and "MG202" in {refusal.code for refusal in found}


def test_a_request_that_the_constructor_takes_is_found():
    text = HANDLER.replace("*, gpu_kv: GpuKvBackend", "*, req: KvRequest, gpu_kv: GpuKvBackend")
    text = text.replace(
        "        self._gpu_kv = gpu_kv\n", "        self._req = req\n        self._gpu_kv = gpu_kv\n"
    )
    found = verdict(text.replace("            gpu_kv=", "            req=worker,\n            gpu_kv="))
    assert not isinstance(found, Proof)
    assert "the constructor takes req, which the recipe does not have" in {
        refusal.message for refusal in found
    }


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(source=workers(), seed=st.integers(0, 9))
def test_a_random_worker_bound_by_request_behaves_as_the_whole_one(source: str, seed: int):
    recipe = dataclasses.replace(SMALL, handles=(dataclasses.replace(SMALL.host, request=True),))
    tree = tree_of(source.encode())
    outcome = plan_cut(recipe, tree)
    if not isinstance(outcome, CutPlan):
        assert set(codes(outcome)) <= {"MG003", "MG014"}  # what is planted there
        return
    after = {change.path: change.after for change in outcome.changes}
    assert b"def on(self, worker: WorkerView) -> Self:" in after[recipe.target_file]
    assert trace(after, seed) == trace({recipe.source_file: source.encode()}, seed)
    back = plan_inline(OverlayTree(tree, after), record(outcome))
    assert isinstance(back, InlinePlan) and back.exact


def test_proof_file_and_inline_carry_it():
    own = record(PLAN)
    assert loads(dumps(own), "x") == own and own.recipe.request is not None
    tree = OverlayTree(TREE, {change.path: change.after for change in PLAN.changes})
    back = plan_inline(tree, own)
    assert isinstance(back, InlinePlan) and back.exact, back


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "request = true",
            "requst = true",
            "line 44: handles[2].requst: unknown entry, did you mean request?",
        ),
        ("request = true", 'request = "yes"', "line 44: handles[2].request: must be bool, is 'yes'"),
        (
            'expressions = ["self.host"]\n',
            'expressions = ["self.host"]\nrequest = true\n',
            "handles[1].expressions: a handle with `request` is what `on` binds, one with `expressions` another",
        ),
        (
            'protocol_text = """\nclass GpuKvBackend',
            'request = true\nprotocol_text = """\nclass GpuKvBackend',
            "handles[0].expressions: a handle with `request` is what `on` binds",
        ),
        (
            'name = "host_kv"',
            'name = "bound_req"',
            "handles[2].request: bound_req is the name of another one",
        ),
    ],
)
def test_mistakes_have_their_line(old: str, new: str, problem: str):
    assert TEXT.count(old) == 1
    with pytest.raises(MigrationError) as caught:
        parse_recipe(TEXT.replace(old, new), "cache.toml")
    assert caught.value.code == "MG401" and problem in str(caught.value)


def test_there_is_one_request_at_most():
    other = '\n[[handles]]\nname = "two"\nprotocol = "Two"\ndoc = ""\nrequest = true\nattributes = ["a"]\n'
    with pytest.raises(MigrationError, match=r"handles\[3\].request: only one may have `request = true`"):
        parse_recipe(TEXT + other, "cache.toml")


def test_without_other_handles_there_is_no_constructor():
    text = (
        TEXT[: TEXT.index("[[handles]]")]
        + TEXT[TEXT.index('[[handles]]\nname = "req"') : TEXT.index("[[rewr")]
    )
    handler = result(cut(parse_recipe(text, "x")), RECIPE.target_file)
    node = next(
        n for n in ast.walk(ast.parse(handler)) if isinstance(n, ast.ClassDef) and n.name == "CacheManager"
    )
    names = [part.name for part in node.body if isinstance(part, ast.FunctionDef)]
    assert names == ["for_worker", "on", "_req", "admit", "room"] and "return cls().on(worker)" in handler


def test_the_snapshot_is_kept_by_the_constructor():
    text = TEXT + '\n[snapshot]\nname = "config"\nclass = "Config"\nfields = ["name"]\n'
    worker = WORKER.replace(b"- self.watermark", b"- self.watermark - len(self.name)")
    handler = result(
        cut(parse_recipe(text, "x"), tree_of(worker, app__backends=BACKENDS)), RECIPE.target_file
    )
    assert "config: Config" in handler and "        ).on(worker)\n" in handler


def test_a_part_of_the_slice_has_it_too():
    part = dataclasses.replace(RECIPE, methods=("room",), section="", stays=(), partial=True)
    assert "def on(self, req" in result(cut(part), RECIPE.target_file)
