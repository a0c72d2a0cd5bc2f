"""Slices that were landed one after the other in one file: `migrate verify` on real repositories."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from migration.cli import main
from migration.proofs.where import proof_path

from .test_cli import git
from .two_golden import GOLDEN

WORKER = "app/worker.py"
#: A second class in a file of its own: it asks the first one.
DESK = '''\
"""Whoever comes gets pages."""

from app.worker import Worker


class Desk:
    def __init__(self):
        self.worker = Worker()
        self.seen = []

    def serve(self, uuid):
        self._note(uuid)
        return self.worker._take(uuid, 4)

    def _note(self, uuid):
        self.seen.append(uuid)
'''
RECIPES = {
    "desk": 'file = "app/desk.py"\nclass = "Desk"\nmethods = ["serve", "_note"]',
    "log": f'file = "{WORKER}"\nclass = "Worker"\nmethods = ["run"]',
    "pages": f'file = "{WORKER}"\nclass = "Worker"\nsection = "Pages"',
    "plans": f'file = "{WORKER}"\nclass = "Worker"\nsection = "Plans"',
}


class Repository:
    """A git repository in which slices land, a commit for each phase."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.capsys = root, capsys

    def migrate(self, *arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as end:
            main([*arguments, "--repo", str(self.root)])
        said = self.capsys.readouterr()
        assert isinstance(end.value.code, int)
        return end.value.code, said.out + said.err

    def land(self, *steps: str) -> None:
        for step in steps:
            phase, name = step.split()
            code, said = self.migrate(phase, str(self.root / f"{name}.toml"))
            assert code == 0, said
            self.commit(step)

    def commit(self, subject: str) -> None:
        git(self.root, "add", "-A")
        git(self.root, "commit", "-qm", subject)

    def verdicts(self, *arguments: str) -> dict[str, dict[str, Any]]:
        """By slice; the exit code is what they come to."""
        code, said = self.migrate("verify", "--json", *arguments)
        rows = {row["slice"]: row for row in json.loads(said)["proofs"]}
        assert code == (0 if all(row["holds"] for row in rows.values()) else 2)
        return rows

    def broken(self, *arguments: str) -> dict[str, str]:
        """The reasons by slice, of those that do not hold."""
        rows = self.verdicts(*arguments).items()
        return {name: "; ".join(row["reasons"]) for name, row in rows if not row["holds"]}

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.root / path
        text = file.read_text()
        assert text.count(old) == 1
        file.write_text(text.replace(old, new))


Start = Callable[..., Repository]


@pytest.fixture
def start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Start:
    def begin(*steps: str) -> Repository:
        root = tmp_path / "repository"
        shutil.copytree(GOLDEN / "before", root, ignore=shutil.ignore_patterns("__pycache__"))
        (root / "app/desk.py").write_text(DESK)
        for name, source in RECIPES.items():
            target = f'file = "app/parts/{name}.py"\nclass = "{name.title()}Handler"\nsiblings = "handler"'
            (root / f"{name}.toml").write_text(
                f'schema = 1\nname = "{name}"\n\n[source]\n{source}\n\n[target]\n{target}\n'
            )
        git(root, "init", "-q")
        found = Repository(root, capsys)
        found.commit("start")
        found.land(*steps)
        return found

    return begin


def whole(name: str) -> tuple[str, ...]:
    return f"port {name}", f"gate {name}", f"cleanup {name}"


#: What main is to be: slices that are cleaned up, and two that are gated.
STACK = (*whole("plans"), *whole("log"), "port pages", "gate pages")


def test_a_stack_holds_after_each_of_its_commits_and_says_what_each_slice_restores(start: Start):
    repository = start()
    for count, step in enumerate(STACK, 1):
        repository.land(step)
        rows = repository.verdicts()
        assert all(row["holds"] for row in rows.values()), (step, rows)
        assert len(rows) == len({done.split()[1] for done in STACK[:count]})
        assert {row["original"] for row in rows.values()} == {"git has it"}


@pytest.mark.parametrize(
    "steps",
    [
        # The gate of one lies between the gate and the clean-up of the other, and before it a whole slice.
        (*whole("log"), "port pages", "gate pages", "port plans", "gate plans", "cleanup pages"),
        ("port pages", "gate pages", *whole("plans"), "cleanup pages"),
        ("port pages", "port plans", "gate plans", "gate pages", "cleanup plans", "port log"),
        (
            "port pages",
            "gate pages",
            "port plans",
            "gate plans",
            "cleanup plans",
            *whole("log"),
            "cleanup pages",
        ),
        (*whole("desk"), "port pages", "gate pages"),
        ("port pages", "gate pages", *whole("desk"), "cleanup pages", "port plans"),
    ],
)
def test_slices_verify_in_whatever_order_their_phases_came(start: Start, steps: tuple[str, ...]):
    repository = start(*steps)
    assert repository.broken() == {}
    count = len(steps)
    assert repository.broken("--base", f"HEAD~{count}") == {}
    first = steps[0].split()[1]
    assert repository.broken(first) == {}


def test_the_base_may_be_any_commit_of_the_stack_and_no_other(start: Start):
    repository = start(*STACK)
    for back in range(len(STACK) + 1):
        assert repository.broken("--base", f"HEAD~{back}") == {}, back
    rows = repository.verdicts("--base", "HEAD~5")  # `log` was to be ported next
    assert rows["log"]["original"] == f"it is {WORKER} at HEAD~5"
    assert rows["pages"]["original"] == f"log, older, restores {WORKER} at HEAD~5"
    assert rows["plans"]["original"] == f"it is older than {WORKER} at HEAD~5"
    git(repository.root, "checkout", "-q", "-b", "other", f"HEAD~{len(STACK)}")
    repository.edit(WORKER, "LIMIT = 8", "LIMIT = 9")
    repository.commit("another class")
    git(repository.root, "checkout", "-q", "-")
    for revision in ("other", "nowhere"):
        said = repository.broken("--base", revision)
        assert said.keys() == {"plans", "log", "pages"}
        assert set(said.values()) == {f"{WORKER} at {revision} is not there, or not what the proofs restore"}


@pytest.mark.parametrize(
    ("path", "old", "new", "slice_name", "said"),
    [
        (
            "app/parts/pages.py",
            "tokens / 4",
            "tokens / 5",
            "pages",
            "PagesHandler._pages is not what was ported",
        ),
        (
            "app/parts/log.py",
            "if uuid in wave",
            "if uuid not in wave",
            "log",
            "LogHandler.run is not what was moved",
        ),
        (
            "app/parts/plans.py",
            "left -= pages",
            "left -= 1",
            "plans",
            "PlansHandler._plan is not what was moved",
        ),
        ("app/parts/plans.py", "100 *", "101 *", "plans", "PlansHandler.share is not what was moved"),
        (WORKER, "tokens / 4", "tokens / 5", "pages", "Worker._pages is not what was ported"),
        (WORKER, '"_dump")', '"_free")', "pages", "the gate of _dump is not what"),
        (
            WORKER,
            "(self)._waves(wanted)",
            "(self)._waves([])",
            "plans",
            "delegate of _waves: the stub does not",
        ),
        (WORKER, "self.log = []", "self.log = [0]", "plans", f"{WORKER} was edited after the proof"),
    ],
)
def test_an_edit_names_the_slice_and_the_method(
    start: Start, path: str, old: str, new: str, slice_name: str, said: str
):
    repository = start(*STACK)
    repository.edit(path, old, new)
    found = repository.broken()
    assert said in found[slice_name]
    order = ["pages", "log", "plans"]
    newer = order[: order.index(slice_name)] if path != WORKER else []
    assert not set(newer) & found.keys(), "what came later holds"
    older = [name for name in order[order.index(slice_name) + 1 :] if path != WORKER]
    assert all(f"{slice_name} came later and must hold first" in found[name] for name in older)


@pytest.mark.parametrize("name", ["plans", "log", "pages"])
def test_every_figure_of_a_proof_file_counts(start: Start, name: str):
    """Whatever is changed in it, the proof no longer holds; that it is no proof file any more is an error."""
    repository = start(*STACK)
    file = repository.root / proof_path(name)
    text = file.read_text()
    body = json.loads(text)
    for key in ("before", "after", "handler"):
        file.write_text(text.replace(body[key], "0" * 64))
        assert name in repository.broken(), key
    for key, value in (("comments", 99), ("bytes_untouched", 1), ("imports_removed", ["x"])):
        file.write_text(json.dumps({**body, "proof": {**body["proof"], key: value}}))
        assert name in repository.broken(), key
    for index, detail in enumerate(body["proof"]["details"]):
        for key, value in (("body", "0" * 64), ("renames", []), ("rewrites", [["x", 1]])):
            if detail[key] == value:
                continue
            details = [*body["proof"]["details"]]
            details[index] = {**detail, key: value}
            file.write_text(json.dumps({**body, "proof": {**body["proof"], "details": details}}))
            assert detail["name"] in repository.broken()[name], key
    for key in ("delegates", "dropped"):
        if body[key]:
            file.write_text(json.dumps({**body, key: body[key][1:]}))
            assert name in repository.broken(), key
    file.write_text(text)
    assert repository.broken() == {}


def test_a_proof_file_that_is_missing_from_the_middle_is_noticed(start: Start):
    repository = start(*STACK)
    (repository.root / proof_path("log")).unlink()
    assert repository.broken() == {"plans": f"no proof file restores {WORKER} to what it left"}


@pytest.mark.parametrize(
    "steps",
    [
        ("port pages", "gate pages", *whole("plans")),
        ("port plans", "port pages", "gate pages", "gate plans", "cleanup plans"),
    ],
)
def test_a_proof_holds_beside_the_handlers_that_there_were_when_it_was_written(
    start: Start, steps: tuple[str, ...]
):
    """An import that a handler mentions is kept: with the later handler in the tree the proof would be another."""
    repository = start()
    repository.edit(WORKER, "left = self._free()", "left = self._free()  # no json here")
    repository.commit("a word that makes the handler of plans one that may borrow")
    repository.land(*steps)
    removed = json.loads((repository.root / proof_path("pages")).read_text())["proof"]["imports_removed"]
    assert ("json" in removed) == (steps[0] == "port pages")
    assert repository.broken() == {}


def test_undo_goes_back_through_the_stack_and_each_state_holds(start: Start):
    repository = start(*STACK)
    for _ in range(len(STACK) - 1):
        code, said = repository.migrate("undo")
        assert code == 0, said
        assert repository.broken() == {}


def test_the_slices_of_two_files_hold_whichever_landed_last(start: Start):
    repository = start(*whole("plans"), *whole("desk"), *whole("log"), "port pages")
    rows = repository.verdicts()
    assert rows.keys() == {"plans", "desk", "log", "pages"}
    assert all(row["holds"] for row in rows.values())
    repository.edit("app/parts/desk.py", "append(uuid)", "append(0)")
    said = repository.broken()
    assert list(said) == ["desk"] and "DeskHandler._note is not what was moved" in said["desk"]


def test_two_gated_slices_are_seen_apart_by_every_command(start: Start):
    repository = start("port pages", "gate pages", "port plans", "gate plans")
    recipes = [str(repository.root / f"{name}.toml") for name in ("pages", "plans")]
    original = (GOLDEN / "before" / WORKER).read_bytes()
    for recipe, gates in zip(recipes, (4, 3), strict=True):
        code, said = repository.migrate("check", recipe, "--json")
        failed = [check["code"] for check in json.loads(said)["checks"] if check["status"] == "failed"]
        assert failed == ["MG636"], "nothing but the date that the recipe does not give"
        assert f"{gates} gates" in said
    _, said = repository.migrate("status", *recipes, "--json")
    found = {one["slice"]: one for one in json.loads(said)["slices"]}
    for name, prefix in (("pages", "PAGES"), ("plans", "PLANS")):
        assert (found[name]["phase"], found[name]["proof"]["holds"]) == ("gated", True)
        assert [flag["name"] for flag in found[name]["flags"]] == [f"{prefix}_NATIVE", f"{prefix}_COMPARE"]
    code, said = repository.migrate("commute", *recipes)
    assert (code, "either order" in said) == (0, True)
    proof = repository.root / proof_path("plans")
    repository.migrate("undo"), repository.migrate("undo")
    proof.write_bytes(git(repository.root, "show", f"HEAD:{proof_path('plans')}").encode())
    code, said = repository.migrate("replay", str(proof), "--check")
    assert (code, "3 unchanged" in said) == (1, True), said
    git(repository.root, "checkout", "-q", ".")
    for name in ("plans", "pages"):
        code, said = repository.migrate("inline", name)
        assert code == 0, said
        repository.commit(f"inline {name}")
        if name == "plans":
            assert repository.broken() == {}
    assert (repository.root / WORKER).read_bytes() == original
    assert not list((repository.root / ".migrate").glob("*.json"))


def test_a_slice_that_was_cleaned_up_folds_back_beside_the_gates_of_another(start: Start):
    repository = start("port pages", "gate pages", *whole("plans"))
    gated = git(repository.root, "show", f"HEAD~3:{WORKER}")
    code, said = repository.migrate("inline", "plans", "--json")
    assert code == 0 and json.loads(said)["exact"], said
    assert (repository.root / WORKER).read_text() == gated
    assert repository.broken() == {}
