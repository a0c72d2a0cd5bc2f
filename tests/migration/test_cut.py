"""What the cut does beside moving text: targets, imports, siblings, line ends."""

from __future__ import annotations

import dataclasses

import pytest

from migration.code.tree import OverlayTree
from migration.errors import MigrationError
from migration.move.cut import CutClean, CutPlan, plan_cut

from .golden_cases import GOLDEN, files, recipe_of
from .support import RECIPE, DictTree, codes, planned, result, tree_of, worker_source

SIMPLE = worker_source("def label(self):\n    return self.name\n")


def test_existing_target_is_refused():
    assert codes(plan_cut(RECIPE, tree_of(SIMPLE, app__parts__cache="x = 1\n"))) == ["MG103"]


def test_target_shadowed_by_a_package_is_refused():
    assert codes(plan_cut(RECIPE, tree_of(SIMPLE, app__parts__cache__inner=""))) == ["MG104"]


def test_target_below_a_module_is_refused():
    assert codes(plan_cut(RECIPE, tree_of(SIMPLE, app__parts=""))) == ["MG104"]


def test_missing_package_files_are_made_in_a_regular_package_only():
    assert "app/parts/__init__.py" in [change.path for change in planned(SIMPLE).changes]
    namespace = plan_cut(RECIPE, DictTree({"app/worker.py": SIMPLE}))
    assert [change.path for change in namespace.changes] == ["app/parts/cache.py", "app/worker.py"]


def test_the_worker_is_written_last():
    """A kill between two renames then leaves the old worker beside a handler that nobody imports."""
    assert planned(SIMPLE).changes[-1].path == "app/worker.py"


def test_handler_class_name_bound_in_the_worker_is_refused():
    worker = worker_source("def label(self):\n    return self.name\n", head="CacheManager = None")
    assert codes(plan_cut(RECIPE, tree_of(worker))) == ["MG106"]


def test_partly_ported_section_is_refused():
    plan = planned(SIMPLE)
    worker = result(plan, "app/worker.py") + "\n\tdef later(self):\n\t\treturn self.name\n"
    done = OverlayTree(tree_of(SIMPLE), {change.path: change.after for change in plan.changes})
    assert codes(plan_cut(RECIPE, OverlayTree(done, {"app/worker.py": worker.encode()}))) == ["MG108"]


def test_stubs_without_their_handler_are_refused():
    worker = result(planned(SIMPLE), "app/worker.py").encode()
    assert codes(plan_cut(RECIPE, tree_of(worker))) == ["MG108"]


def test_a_name_whose_module_imports_the_worker_is_taken_from_the_worker():
    """Imported at the top of the handler it would close a cycle."""
    worker = worker_source(
        "def label(self):\n    return tool(self.name)\n", head="from app.tools import tool"
    )
    plan = planned(worker, app__tools="import app.worker\n\ntool = str\n")
    assert "        from app.worker import tool\n" in result(plan, RECIPE.target_file)
    assert "from app.tools" not in result(plan, RECIPE.target_file)
    assert "from app.tools import tool\n" in result(plan, RECIPE.source_file)


@pytest.mark.parametrize(("parameter", "typed"), [("", False), (": Plan", True)])
def test_a_name_taken_from_the_worker_serves_the_annotations_of_the_body_too(parameter: str, typed: bool):
    worker = worker_source(
        f"def make(self, given{parameter} = None):\n    plan: Plan = given\n    return Plan()\n",
        head="from app.plans import Plan\n",
    )
    plan = planned(worker, app__plans="import app.worker\n\n\nclass Plan: ...\n")
    handler = result(plan, "app/parts/cache.py")
    assert "        from app.worker import Plan\n" in handler
    assert ("    from app.plans import Plan\n" in handler.partition("class ")[0]) == typed


def test_lazy_import_of_the_worker_is_no_cycle():
    worker = worker_source(
        "def label(self):\n    return tool(self.name)\n", head="from app.tools import tool"
    )
    planned(worker, app__tools="def tool(x):\n    import app.worker\n")


def test_a_package_that_imports_the_worker_is_a_cycle():
    tree = OverlayTree(tree_of(SIMPLE), {"app/parts/__init__.py": b"from .. import worker\n"})
    outcome = plan_cut(RECIPE, tree)
    assert codes(outcome) == ["MG105"]
    assert outcome.refusals[0].message == "app.parts.cache imports app.parts imports app.worker"


def test_the_package_of_the_worker_may_import_it():
    """It has run before either module is imported."""
    planned(SIMPLE, app____init__="from .worker import Worker\n")


CALLS = worker_source(
    "def outer(self):\n    return self.inner(), self.inner\n\ndef inner(self):\n    return self.name\n"
)


def test_sibling_calls_stay_on_the_handler_and_references_go_to_the_worker():
    assert "return self.inner(), self._worker.inner" in result(planned(CALLS), "app/parts/cache.py")


def test_late_bound_sibling_is_called_through_the_worker():
    recipe = dataclasses.replace(RECIPE, late_bound=("inner",))
    assert "return self._worker.inner(), " in result(planned(CALLS, recipe), "app/parts/cache.py")


def test_sibling_overridden_in_a_subclass_is_refused():
    subclass = "class Special(worker.Worker):\n    def inner(self):\n        return 1\n"
    assert codes(plan_cut(RECIPE, tree_of(CALLS, app__special=subclass))) == ["MG107"]
    assert codes(plan_cut(RECIPE, tree_of(CALLS + subclass.replace("worker.", "").encode()))) == ["MG107"]


@pytest.mark.parametrize("patch", ["monkeypatch.setattr(Stub, 'inner', print)", "Stub.inner = print"])
@pytest.mark.parametrize(
    ("owner", "is_ours"),
    [
        ("class Stub:\n    pass\n", False),
        ("class Base:\n    pass\n\nclass Stub(Base):\n    pass\n", False),
        ("class Stub(Worker):\n    pass\n", True),
        ("class Stub(imported.Base):\n    pass\n", True),
        ("class Stub:\n    pass\n\nStub = Worker\n", True),
        ("class Stub:\n    pass\n\nfrom app.worker import Worker as Stub\n", True),
        ("", True),
    ],
)
def test_a_class_of_the_patching_file_that_is_no_worker_is_none_of_ours(
    owner: str, is_ours: bool, patch: str
):
    tests = f"{owner}\n{patch}\n"
    if is_ours:
        assert codes(plan_cut(RECIPE, tree_of(CALLS, tests__test_it=tests))) == ["MG107"]
    else:
        assert "return self.inner(), " in result(planned(CALLS, tests__test_it=tests), "app/parts/cache.py")


@pytest.mark.parametrize(
    "patch",
    [
        "worker.inner = print",
        "monkeypatch.setattr(worker, 'inner', print)",
        "mock.patch.object(Worker, 'inner')",
    ],
)
def test_sibling_patched_elsewhere_is_refused_until_it_is_late_bound(patch: str):
    tree = tree_of(CALLS, tests__test_it=f"\n{patch}\n")
    outcome = plan_cut(RECIPE, tree)
    assert codes(outcome) == ["MG107"]
    (refusal,) = outcome.refusals
    assert (refusal.where, refusal.line, refusal.message) == ("inner", 2, "by tests/test_it.py")
    assert isinstance(plan_cut(dataclasses.replace(RECIPE, late_bound=("inner",)), tree), CutPlan)


def test_an_attribute_of_another_class_is_no_patch():
    planned(CALLS, app__other="class Other:\n    def __init__(self):\n        self.inner = 1\n")


def test_sibling_that_the_worker_assigns_itself_is_called_through_the_worker():
    worker = CALLS + b"\n\t# ==== Rest ====\n\n\tdef swap(self):\n\t\tself.inner = print\n"
    assert "return self._worker.inner(), " in result(planned(worker), "app/parts/cache.py")


IMPORTS = "import json\nfrom text import (\n\twrap,\n\tfill as filled, dedent,\n)"
USES = "def label(self):\n    return json.dumps(wrap(dedent(self.name)))\n"


def test_imports_that_only_moved_code_used_go():
    text = result(planned(worker_source(USES, head=IMPORTS)), "app/worker.py")
    assert text.startswith(
        "from text import (\n\tfill as filled,\n)\nfrom app.parts.cache import CacheManager\n"
    )


@pytest.mark.parametrize(
    ("head", "files", "reason"),
    [
        (IMPORTS.replace("import json", "import json  # used by the debugger"), {}, "shares its lines"),
        (IMPORTS, {"app__other": "from app.worker import json\n"}, "app/other.py may take it"),
        (IMPORTS.replace("import json", "import json; json.x = 1"), {}, None),
    ],
)
def test_imports_that_somebody_may_miss_stay(head: str, files: dict[str, str], reason: str | None):
    plan = planned(worker_source(USES, head=head), **files)
    assert "import json" in result(plan, "app/worker.py")
    assert [note for note in plan.notes if "json" in note and reason and reason in note] or reason is None


def test_import_for_annotations_alone_stays_at_run_time_in_the_worker():
    """The handler imports it under TYPE_CHECKING only, so its side effects must go on happening here."""
    worker = worker_source(
        "def f(self):\n    x: Deep = self.name\n    return x\n", head="from deep import Deep"
    )
    plan = planned(worker)
    assert "from deep import Deep" in result(plan, "app/worker.py")
    assert "if TYPE_CHECKING:\n    from deep import Deep" in result(plan, "app/parts/cache.py")


@pytest.mark.parametrize("case", ["layout", "signatures", "imports"])
def test_crlf_files_give_crlf_files(case: str):
    folder = GOLDEN / case
    before = {path: data.replace(b"\n", b"\r\n") for path, data in files(folder / "before").items()}
    plan = plan_cut(recipe_of(case), DictTree(before))
    after = files(folder / "after")
    for change in plan.changes:
        if not change.path.endswith("__init__.py"):
            assert change.after == after[change.path].replace(b"\n", b"\r\n")


def test_a_banner_right_above_a_method_stays_in_the_worker():
    worker = SIMPLE.replace(b"\n\n\tdef label", b"\n\t# what it is called\n\tdef label")
    plan = planned(worker)
    assert "\t# ============ Cache ============\n\tdef label(self):" in result(plan, "app/worker.py")
    assert "\n\n    # what it is called\n    def label" in result(plan, "app/parts/cache.py")


def test_self_may_have_any_name():
    text = result(
        planned(worker_source("def label(me):\n    return [me.name, f'{me.name}']\n")), "app/parts/cache.py"
    )
    assert "return [me._worker.name, f'{me._worker.name}']" in text


def test_header_comments_leave_the_stub_where_letters_are_wide():
    methods = (
        "def label(self, é='→', *, ü=1,  # größer\n          x=2):  # ende\n    return é, ü, x, self.name\n"
    )
    plan = planned(worker_source(methods))
    assert "\tdef label(self, é='→', *, ü=1,\n\t\t\t  x=2):\n" in result(plan, "app/worker.py")
    assert "def label(self, é='→', *, ü=1,  # größer\n" in result(plan, "app/parts/cache.py")


def test_a_name_local_to_the_method_is_not_imported_for_its_annotations():
    methods = "def make(self):\n    class Deep: pass\n    x: Deep = Deep()\n    return x\n"
    plan = planned(worker_source(methods, head="from deep import Deep\nDeep()"))
    assert "import Deep" not in result(plan, "app/parts/cache.py")


def test_a_folder_that_is_a_namespace_package_stays_one():
    plan = plan_cut(RECIPE, tree_of(SIMPLE, app__parts__other=""))
    assert [change.path for change in plan.changes] == ["app/parts/cache.py", "app/worker.py"]


def test_methods_that_use_no_attribute_need_no_handle():
    methods = "def fixed(self, x):\n    return x\n\n@staticmethod\ndef other():\n    return 1\n"
    plan = planned(worker_source(methods))
    assert plan.handles == () and "Protocol" not in result(plan, "app/parts/cache.py")
    assert "CacheManager.for_worker(self).fixed(x)" in result(plan, "app/worker.py")


def test_no_final_newline_is_kept():
    plan = planned(SIMPLE.removesuffix(b"\n"))
    assert not result(plan, "app/worker.py").endswith("\n")
    assert result(plan, "app/parts/cache.py").endswith("return self._worker.name\n")


def test_byte_order_mark_is_kept():
    assert result(planned(b"\xef\xbb\xbf" + SIMPLE), "app/worker.py").startswith("\ufeff")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"x = '\xe9'\n", "MG302"),
        (b"# -*- coding: nothing -*-\nclass Worker: pass\n", "MG302"),
        (b"class Worker:\npass\n", "MG301"),
        (b"class Other: pass\n", "MG102"),
        (b"class Worker: pass\nclass Worker: pass\n", "MG102"),
        (SIMPLE.replace(b" Cache ", b" Cash "), "MG101"),
        (SIMPLE + SIMPLE.split(b"\n\n")[1] + b"\n", "MG101"),
    ],
)
def test_files_that_cannot_be_cut_are_named_in_one_line(data: bytes, code: str):
    with pytest.raises(MigrationError) as error:
        plan_cut(RECIPE, tree_of(data))
    assert error.value.code == code and "\n" not in str(error.value)


def test_method_listed_as_staying_must_exist():
    with pytest.raises(MigrationError, match="nowhere"):
        plan_cut(dataclasses.replace(RECIPE, stays=("nowhere",)), tree_of(SIMPLE))


def test_staying_method_is_called_through_the_worker():
    recipe = dataclasses.replace(RECIPE, stays=("inner",))
    plan = planned(CALLS, recipe)
    assert "return self._worker.inner(), " in result(plan, "app/parts/cache.py")
    assert "\tdef inner(self):\n\t\treturn self.name\n" in result(plan, "app/worker.py")
    done = OverlayTree(tree_of(CALLS), {change.path: change.after for change in plan.changes})
    assert isinstance(plan_cut(recipe, done), CutClean)


def test_space_indented_worker_moves_too():
    plan = planned(SIMPLE.replace(b"\t", b"  "))
    assert "    def label(self):\n      return self._worker.name\n" in result(plan, "app/parts/cache.py")
    assert "\n    return CacheManager.for_worker(self).label()" in result(plan, "app/worker.py")


def test_an_imported_name_that_a_test_replaces_in_the_worker_module_is_taken_from_there():
    worker = worker_source("def label(self):\n    return dumps(self.name)\n", head="from json import dumps")
    for test in (
        "monkeypatch.setattr('app.worker.dumps', print)",
        "from app import worker\nworker.dumps = print",
    ):
        plan = planned(worker, tests__test_worker=f"{test}\n")
        assert "        from app.worker import dumps\n" in result(plan, RECIPE.target_file)
    other = planned(worker, tests__test_worker="monkeypatch.setattr('app.other.dumps', print)\n")
    assert "\nfrom json import dumps\n" in result(other, RECIPE.target_file)


ANNOTATED = """\
from __future__ import annotations
import typing as t
if t.TYPE_CHECKING:
    from app.other import Item
V = t.TypeVar("V")


class Worker:
    class Info:
        pass

    def find(self, kind: type[V]) -> V | None:
        return None

    def complete(self) -> list[Item]:
        from app.other import Item

        found: list[Item] = []
        return found

    def info(self) -> Info:
        return self.Info()
"""


def test_annotations_may_name_type_variables_nested_classes_and_what_the_body_imports_again():
    recipe = dataclasses.replace(RECIPE, section="", methods=("find", "complete", "info"))
    text = result(planned(ANNOTATED.encode(), recipe, app__other="class Item: pass\n"), RECIPE.target_file)
    typing = text[text.index("if TYPE_CHECKING:") :]
    for line in ("from app.other import Item", "from app.worker import V, Worker", "Info = Worker.Info"):
        assert f"\n    {line}\n" in typing


def test_an_annotation_that_was_undefined_before_may_stay_so():
    """Stub and handler both carry the signature, so it is found twice."""
    planned(worker_source("def two(self) -> 'Nowhere':\n    return 2\n"))


def test_a_name_that_only_some_handlers_need_may_come_from_elsewhere():
    """`Callable` is imported for handles that are read anew; this one has none."""
    worker = worker_source(
        "def label(self, make: Callable[[], str]) -> str:\n    return make()\n",
        head="from typing import Callable",
    )
    assert "from typing import Any, Callable" in result(planned(worker), RECIPE.target_file)
