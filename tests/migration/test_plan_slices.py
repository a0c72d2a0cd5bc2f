"""Each slice of a plan has handles by concern, a verified cut or reasons, and a recipe that gives that cut."""

from __future__ import annotations

import dataclasses
import subprocess
import textwrap
from pathlib import Path

import pytest

from migration.code.source import Source
from migration.code.structure import outline
from migration.errors import MigrationError
from migration.ledger.change import FileChange
from migration.ledger.patch import patch
from migration.move.cut import CutPlan, plan_cut
from migration.recipe import parse_recipe
from migration.seams.concerns import MOST, concerns
from migration.seams.graph import class_graph
from migration.seams.interface import cluster
from migration.seams.plan import ClassPlan, Wanted, candidates
from migration.seams.trial import Trial, file_diff
from migration.seams.write import planned_text

from .seams_worker import PATH, WORKER, graph, planned, tree


def groups(text: str, *names: str) -> dict[str, tuple[str, ...]]:
    found = graph(text)
    return {c.name: c.attributes for c in concerns(found, cluster(found, names or found.movable))}


def slice_of(plan: ClassPlan, name: str) -> Trial:
    return next(trial for trial in plan.trials if trial.candidate.name == name)


CONCERNS = """
class Worker(Base):
    SIZE = 4
    def __init__(self, pool):
        self.rank = 0
        self.app_config = None
        self.pool = pool
        self.rows = []
        self.table = {}
        self.mode = self.count = 0
    def work(self):
        self.pool.take(self.SIZE, self.rank, self.app_config.build())
        self.count += 1
        self.rows.append(self.table)
        self.method()
        return self.mode, self.inherited, self.unknown_config
    def method(self):
        self.table[self.count[0]] = 2
    def other(self):
        self.mode = 2
        self.table = None
"""


def test_attributes_are_grouped_by_what_they_are_to_the_cluster():
    assert groups(CONCERNS, "work") == {
        "config": ("SIZE", "app_config", "rank", "unknown_config"),
        "state": ("rows",),
        "shared": ("count", "mode", "table"),
        "pool": ("pool",),
    }
    # With the other user in the cluster it is the cluster's own state.
    assert groups(CONCERNS, "work", "method")["state"] == ("count", "rows")


@pytest.mark.parametrize(
    "change",
    ["self.x[i] = 1", "self.x.y = 1", "self.x[0].y += 1", "del self.x[0]", "self.x.append(1)", "self.x = 1"],
)
def test_what_is_changed_in_place_is_no_configuration(change: str):
    text = "class Worker:\n    def __init__(self): self.x = []\n    def f(self): return self.x\n    def g(self): {}\n"
    assert groups(text.format(change), "f") == {"shared": ("x",)}
    assert groups(text.format("pass"), "f") == {"config": ("x",)}
    assert groups(text.format("self.x[0] == 1"), "f") == {"config": ("x",)}


@pytest.mark.parametrize(
    ("use", "is_object"),
    [
        ("self.pool.give()", True),
        ("return self.pool.size", True),
        ("return (self\n            .pool.size)", False),
        ("return self.pool", False),
        ("self.pool(1)", False),
        ("return self.pool.items[self.pool]", False),
        ("self.pool = 1", False),
        ("return hasattr(self, 'pool')", False),
        ("return getattr(self, 'pool', None)", False),
    ],
)
def test_an_object_is_a_handle_of_its_own_where_nothing_but_its_members_is_used(use: str, is_object: bool):
    text = (
        "class Worker:\n    def __init__(self, pool): self.pool = self.n = pool\n"
        f"    def work(self):\n        self.pool.take(self.n)\n        {use}\n    def other(self): self.n = 1\n"
    )
    plan = planned(text, Wanted(methods=("work",)))
    (trial,) = plan.trials
    pool = next(handle for handle in trial.recipe.handles if handle.name == "pool")
    assert (pool.expressions, pool.attributes) == ((("self.pool",), ()) if is_object else ((), ("pool",)))
    assert trial.verdict == "yes" and trial.members == trial.candidate.members
    assert ("pool.take" in trial.members) is is_object and ("pool" in trial.members) is not is_object


@pytest.mark.parametrize("origin", ["typing", "collections.abc"])
def test_a_worker_may_have_its_own_callable(origin: str):
    # The constructor of a handler with an object takes a Callable.
    text = WORKER.replace("import json\n", f"import json\nfrom {origin} import Callable\n").replace(
        "def take_pages(self, uuid, count):", "def take_pages(self, uuid, count: Callable[[], int] | int):"
    )
    (trial,) = planned(text, Wanted(section="Pages")).trials
    assert trial.verdict == "yes" and trial.plan is not None
    handler = (trial.plan.changes[0].after or b"").decode()
    imports = [line for line in handler.splitlines() if "import" in line and "Callable" in line]
    assert len(imports) == 1 and imports[0].startswith(f"from {origin} import ")


def test_objects_share_a_handle_where_there_are_too_many():
    calls = "\n".join(f"        self.part{n}.go()" for n in range(9)) + "\n        self.part7.go2(self.late)"
    text = (
        "class Worker:\n    def __init__(self, x):\n        self.n = 0\n"
        + "".join(f"        self.part{n} = x\n" for n in range(9))
        + f"    def work(self):\n{calls}\n        self.late = self.n\n    def other(self): self.late = 2\n"
    )
    found = groups(text, "work")
    assert len(found) == MOST and list(found)[:2] == ["config", "shared"]
    assert found["part7"] == ("part7",) and len(found["objects"]) == 6
    assert sorted(a for attributes in found.values() for a in attributes) == sorted(
        [*(f"part{n}" for n in range(9)), "n", "late"]
    )


def test_names_of_handles_and_protocols_clash_with_nothing():
    text = textwrap.dedent("""
        from app.pool import Pool as WorkConfig
        class WorkHandler: ...
        class Worker:
            def __init__(self, config, pool):
                self.config = self._class = self.state = pool
                self.n = 0
            def work(self):
                self.state.go(); self._class.go(); self.n += 1
                return self.config, self._config()
            def _config(self): return self._host(1)
            def _host(self, x): return x
        """)
    files = tree(text)
    found = class_graph(files, PATH, "Worker")
    (whole,) = candidates(files, found, Wanted(methods=("work",)))
    names = [handle.name for handle in whole.recipe.handles]
    assert names == ["config_part", "state", "class_", "state_object", "host_part"]
    assert whole.recipe.handler_class == "WorkSliceHandler"
    protocols = [handle.protocol for handle in whole.recipe.handles]
    assert protocols[0] == "WorkConfigView" and len(set(protocols)) == 5
    plan = planned(text, Wanted(methods=("work", "_config", "_host")))
    assert [trial.verdict for trial in plan.trials] == ["yes"]


def test_each_slice_is_cut_with_the_members_that_were_predicted():
    plan = planned()
    assert [trial.candidate.name for trial in plan.trials] == ["pages", "sample", "finish"]
    for trial in plan.trials:
        assert trial.verdict == "yes" and isinstance(trial.plan, CutPlan)
        assert trial.members == trial.candidate.members
        assert {detail.name for detail in trial.plan.proof.details} == set(trial.candidate.cluster.names)
    pages = slice_of(plan, "pages")
    assert (pages.written, pages.lazy) == (("high_water",), ("high_water",))
    assert pages.recipe.target_file == "app/worker_parts/pages.py" and pages.recipe.import_root == ""


def test_the_recipe_reads_back_and_gives_the_same_cut():
    plan = planned()
    for trial in plan.trials:
        recipe = parse_recipe(planned_text(plan, trial), "x.toml")
        assert recipe == trial.recipe and set(recipe.planned) == set(trial.candidate.cluster.names)
        again = plan_cut(recipe, tree())
        assert trial.plan is not None and again == trial.plan


def test_slices_are_cut_one_after_the_other():
    files = {"app/worker.py": WORKER.encode()}
    plan = planned()
    current = tree()
    for index in plan.order:
        from migration.code.tree import OverlayTree

        outcome = plan_cut(plan.trials[index].recipe, current)
        assert isinstance(outcome, CutPlan)
        current = OverlayTree(current, {change.path: change.after for change in outcome.changes})
    left = outline(Source(PATH, current.read(PATH) or files[PATH]), "Worker")
    assert all(len(m.node.body) == 1 for m in left.methods if m.name != "__init__")


def test_slices_that_are_called_come_first():
    plan = planned()
    names = [plan.trials[index].candidate.name for index in plan.order]
    assert names.index("pages") < names.index("sample") and names.index("pages") < names.index("finish")


def test_stubs_are_needed_where_others_call():
    plan = planned()
    assert plan.stubs_needed(slice_of(plan, "pages")) == ("take_pages", "give_pages")
    assert plan.stubs_needed(slice_of(plan, "sample")) == ("step",)
    assert plan.named_in == {"step": ("app/main.py",), "finish": ("app/main.py",)}


def test_code_beside_the_class_counts_as_a_caller():
    plan = planned(WORKER + "\ndef run(worker):\n    return worker.count_pages()\n")
    assert plan.named_in["count_pages"] == (PATH,)


def test_a_section_is_anchored_on_its_banner():
    (whole,) = planned(wanted=Wanted(section="Pages")).trials
    assert (whole.recipe.section, whole.recipe.methods, whole.candidate.name) == ("Pages", (), "pages")
    assert whole.candidate.origin == "section" and whole.verdict == "yes"


def test_a_section_over_the_budget_is_divided():
    plan = planned(wanted=Wanted(section="Pages", budget=13))
    assert [(t.candidate.name, t.candidate.origin) for t in plan.trials] == [
        *(("pages", "section"), ("pages_a", "part"), ("pages_b", "part"))
    ]
    assert plan.trials[0].candidate.over_budget and not plan.trials[1].candidate.over_budget
    assert plan.order == (1, 2, 0) or plan.order == (2, 1, 0)
    assert len({t.recipe.target_file for t in plan.trials}) == 3
    moved = [name for trial in plan.trials[1:] for name in trial.candidate.cluster.names]
    assert sorted(moved) == ["count_pages", "give_pages", "take_pages"]


def test_methods_are_taken_in_the_order_of_the_file():
    (whole,) = planned(wanted=Wanted(methods=("count_pages", "take_pages", "count_pages"))).trials
    assert whole.recipe.methods == ("take_pages", "count_pages") and whole.candidate.origin == "methods"


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (Wanted(section="Page"), "MG101", "it has Pages"),
        (Wanted(methods=("take_page", "zzz")), "MG535", r"no take_page \(did you mean take_pages\?\), zzz"),
    ],
)
def test_what_is_not_there_cannot_be_planned(wanted: Wanted, code: str, message: str):
    with pytest.raises(MigrationError, match=message) as error:
        planned(wanted=wanted)
    assert error.value.code == code


def test_a_refused_method_stays_and_the_rest_moves():
    plan = planned(WORKER.replace("total = 0", "total = len(locals())"), Wanted(section="Pages"))
    (trial,) = plan.trials
    assert trial.verdict == "part" and trial.recipe.stays == ("count_pages",)
    assert [r.code for r in trial.refused["count_pages"]] == ["MG011"]
    assert trial.plan is not None and trial.plan.methods == ("take_pages", "give_pages")
    text = planned_text(plan, trial)
    assert '"count_pages",  # MG011: locals() sees the frame it is called in' in text
    assert set(trial.recipe.planned) == {"take_pages", "give_pages"}


def test_nothing_moves_where_every_method_is_refused():
    plan = planned(WORKER.replace("total = 0", "total = len(locals())"), Wanted(methods=("count_pages",)))
    (trial,) = plan.trials
    assert trial.verdict == "no" and trial.plan is None and set(trial.refused) == {"count_pages"}
    assert trial.diff == () and trial.members == frozenset()


def test_a_reason_that_names_no_method_blocks_the_slice():
    # app/worker_parts.py stands where the package of the parts would.
    plan = planned(WORKER, Wanted(section="Pages"), app__worker_parts="x = 1\n")
    (trial,) = plan.trials
    assert trial.verdict == "no" and [r.code for r in trial.blocking] == ["MG104"] and not trial.refused


def test_who_brings_about_a_reason_that_names_no_method_is_found():
    # The handler module needs typing's Protocol under that name.
    text = WORKER.replace("import json\n", "import json\nfrom app.net import Protocol\n").replace(
        "total = 0", "total = Protocol()"
    )
    plan = planned(text, Wanted(section="Pages"), app__net="class Protocol: ...\n")
    (trial,) = plan.trials
    assert trial.verdict == "part" and trial.recipe.stays == ("count_pages",) and not trial.blocking
    assert [r.message for r in trial.refused["count_pages"]] == ["Protocol means two things"]
    assert trial.plan is not None and trial.plan.methods == ("take_pages", "give_pages")


def test_methods_that_others_replace_are_called_through_the_worker():
    subclass = "from app.worker import Worker\nclass Fast(Worker):\n    def count_pages(self): return 0\n"
    plan = planned(WORKER, Wanted(section="Pages"), app__fast=subclass)
    (trial,) = plan.trials
    assert trial.verdict == "yes" and trial.recipe.late_bound == ("count_pages",)
    assert trial.members == trial.candidate.members | {"count_pages"}


def test_an_earlier_slice_is_left_alone():
    text = WORKER.replace("        total = 0\n", "").replace(
        """        for pages in self.pages.values():
            total += len(pages)
        return total""",
        "        return Count.for_worker(self).count_pages()",
    )
    plan = planned(text, Wanted(section="Pages"))
    (trial,) = plan.trials
    assert trial.recipe.stays == ("count_pages",) and trial.verdict == "yes"
    assert trial.plan is not None and trial.plan.methods == ("take_pages", "give_pages")
    taken = planned(text, Wanted(methods=("count_pages",)))
    assert taken.trials == ()


def test_names_of_slices_that_were_cut_before_are_not_used_again():
    files = {".migrate__pages.proof": "", "app__worker_parts__pages2": ""}
    base = tree(WORKER, **files)
    proofs = {".migrate/pages.proof.json": b"{}", **getattr(base, "files", {})}
    found = class_graph(base, PATH, "Worker")
    there = dataclasses.replace(base, files=proofs)
    (whole,) = candidates(there, found, Wanted(section="Pages"))
    assert whole.name == "pages2" and whole.recipe.target_file == "app/worker_parts/pages2_2.py"


def test_a_file_that_is_no_module_cannot_be_planned():
    base = tree()
    files = dataclasses.replace(base, files={"my-app/worker.py": WORKER.encode()})
    with pytest.raises(MigrationError, match=r"my-app/worker\.py") as error:
        candidates(files, class_graph(files, "my-app/worker.py"), Wanted())
    assert error.value.code == "MG531"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, b"a\nb\n"),
        (b"a\nb\nc\n", b"a\n--x\n++y\nc"),
        (b"a\n", None),
        (b"\n-- a\n", b"\n"),
        (b"x", b"x"),
    ],
)
def test_the_size_of_a_diff_is_what_git_counts(before: bytes | None, after: bytes | None, tmp_path: Path):
    change = FileChange("a.txt", before, after)
    if before == after:
        assert file_diff(change) == dataclasses.replace(file_diff(change), added=0, deleted=0)
        return
    (tmp_path / "p").write_bytes(patch([change]))
    run = subprocess.run(
        ["git", "apply", "--numstat", "p"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    counted = file_diff(change)
    assert run.stdout == f"{counted.added}\t{counted.deleted}\ta.txt\n"
