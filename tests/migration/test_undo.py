"""`migrate undo`: the last write is taken back byte for byte, or not at all."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migration.errors import MigrationError
from migration.ledger import journal
from migration.ledger.change import FileChange
from migration.ledger.git import uncommitted
from migration.ledger.records import KEPT, UNDO, records
from migration.ledger.undo import UndoPlan, UndoRefused, plan_undo, undo

from .disk_faults import (
    CHANGES,
    NEW,
    OLD,
    Killed,
    changes_between,
    killed_at,
    labels,
    make_tree,
    refused_at,
    tree,
    unsynced,
    with_folders,
)
from .golden_cases import GOLDEN
from .test_cli import git, migrate

CASE = GOLDEN / "handles"
RECIPE = CASE / "slice.toml"
OLD_TREE, NEW_TREE = with_folders(OLD), with_folders(NEW)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The new tree, written over the old one."""
    return written(tmp_path / "root")


def written(root: Path) -> Path:
    root.mkdir()
    make_tree(root)
    with unsynced():
        journal.write_all(root, CHANGES, label="port --cut kv")
    return root


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A committed copy of a case before its cut."""
    root = tmp_path / "tree"
    shutil.copytree(CASE / "before", root, ignore=shutil.ignore_patterns("__pycache__"))
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "start")
    return root


def take_back(root: Path) -> None:
    plan = plan_undo(root)
    assert isinstance(plan, UndoPlan), plan
    undo(root, plan)


def test_undo_gives_back_bytes_modes_and_folders(root: Path):
    (root / "a.py").chmod(0o600)
    take_back(root)
    assert tree(root) == OLD_TREE and (root / "a.py").stat().st_mode & 0o777 == 0o600
    assert not (root / ".migrate").exists(), "after the last undo nothing of ours is left"


def test_a_deleted_file_comes_back_with_its_mode(tmp_path: Path):
    (tmp_path / "tool.py").write_bytes(b"#!/usr/bin/env python\n")
    (tmp_path / "tool.py").chmod(0o755)
    journal.write_all(tmp_path, [FileChange("tool.py", b"#!/usr/bin/env python\n", None)], label="cleanup")
    assert not (tmp_path / "tool.py").exists()
    take_back(tmp_path)
    assert (tmp_path / "tool.py").stat().st_mode & 0o777 == 0o755


def test_a_link_is_written_and_undone_through(tmp_path: Path):
    (tmp_path / "real.py").write_bytes(b"old\n")
    (tmp_path / "a.py").symlink_to("real.py")
    journal.write_all(tmp_path, [FileChange("a.py", b"old\n", b"new\n")], label="port")
    assert (tmp_path / "real.py").read_bytes() == b"new\n"
    take_back(tmp_path)
    assert (tmp_path / "real.py").read_bytes() == b"old\n" and (tmp_path / "a.py").is_symlink()


def test_a_folder_that_was_there_before_stays_and_caches_do_not_keep_a_new_one(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    added = ("empty/x.py", "new/deep/y.py", "shared/z.py")
    journal.write_all(tmp_path, [FileChange(path, None, b"\n") for path in added], label="port")
    (tmp_path / "new/deep/__pycache__").mkdir()
    (tmp_path / "new/deep/__pycache__/y.cpython-311.pyc").write_bytes(b"")
    (tmp_path / "shared/mine.txt").write_bytes(b"mine")
    take_back(tmp_path)
    assert tree(tmp_path) == {"empty": None, "shared": None, "shared/mine.txt": b"mine"}


def test_undo_is_refused_for_each_file_that_changed_since(root: Path):
    make_tree(root, {"a.py": b"edited\n", "gone/d.py": b"again\n"})
    (root / "pkg/b.py").unlink()
    before = tree(root)
    plan = plan_undo(root)
    assert isinstance(plan, UndoRefused)
    found = {
        (refusal.code, refusal.where): refusal.message.split("; before the write: ")
        for refusal in plan.refusals
    }
    assert {key: why for key, (why, _) in found.items()} == {
        ("MG308", "a.py"): "its content is no longer what was written",
        ("MG308", "pkg/b.py"): "it is gone",
        ("MG308", "gone/d.py"): "it exists again",
    }
    assert {path: Path(kept).read_bytes() for (_, path), (_, kept) in found.items()} == OLD
    assert tree(root) == before and labels(root) == ["port --cut kv"]


def test_an_edit_between_plan_and_undo_is_not_lost(root: Path):
    plan = plan_undo(root)
    assert isinstance(plan, UndoPlan)
    (root / "a.py").write_bytes(b"edited\n")
    with pytest.raises(MigrationError, match=r"a\.py"):
        undo(root, plan)
    assert tree(root) == {**NEW_TREE, "a.py": b"edited\n"} and labels(root) == ["port --cut kv"]


def test_a_record_that_is_gone_by_now_stops_its_undo(root: Path):
    plan = plan_undo(root)
    assert isinstance(plan, UndoPlan)
    shutil.rmtree(root / UNDO / "0001")
    with pytest.raises(MigrationError, match="0001 is gone"):
        undo(root, plan)
    assert tree(root) == NEW_TREE


def test_a_file_that_was_taken_back_by_hand_is_not_in_the_way(root: Path):
    make_tree(root, {path: OLD[path] for path in ("a.py", "gone/d.py")})
    (root / "pkg/deep/er/c.py").unlink()
    take_back(root)
    assert tree(root) == OLD_TREE and labels(root) == []


def test_a_kill_at_any_call_leaves_the_write_or_its_undo(tmp_path: Path):
    seen = []
    for instant in range(1000):
        root = written(tmp_path / str(instant))
        try:
            with killed_at(instant):
                take_back(root)
            break
        except Killed:
            pass
        journal.recover(root)
        found = tree(root), labels(root)
        assert found in ((NEW_TREE, ["port --cut kv"]), (OLD_TREE, [])), instant
        seen.append("undone" if found[0] == OLD_TREE else "written")
    assert seen.count("written") > 15 and seen.count("undone") > 10


def test_an_undo_that_the_system_refuses_leaves_the_write(tmp_path: Path):
    for instant in range(1000):
        root = written(tmp_path / str(instant))
        try:
            with refused_at(instant):
                take_back(root)
        except OSError:
            assert (tree(root), labels(root)) == (NEW_TREE, ["port --cut kv"]) and not journal.pending(root)
            continue
        if tree(root) == OLD_TREE and instant > 40:
            break
    assert instant > 30


def test_the_last_twenty_writes_can_be_undone_one_by_one(tmp_path: Path):
    states = [b"0\n"]
    (tmp_path / "a.py").write_bytes(states[0])
    with unsynced():
        for number in range(1, KEPT + 4):
            states.append(b"%d\n" % number)
            journal.write_all(tmp_path, [FileChange("a.py", *states[-2:])], label=f"write {number}")
        assert len(records(tmp_path)) == KEPT and records(tmp_path)[0].label == f"write {KEPT + 3}"
        for state in states[-2:2:-1]:
            take_back(tmp_path)
            assert (tmp_path / "a.py").read_bytes() == state
    assert records(tmp_path) == () and (tmp_path / "a.py").read_bytes() == b"3\n"


FILES = st.dictionaries(
    st.sampled_from(["a", "b", "d/a", "d/e/a", "d/e/b", "f/a"]), st.binary(max_size=3), min_size=1
)


@given(st.lists(st.one_of(FILES, st.none()), min_size=1, max_size=8))
@settings(derandomize=True, max_examples=60, deadline=None)
def test_any_writes_and_undos_walk_the_same_trees(tmp_path_factory: pytest.TempPathFactory, steps: list):
    """None is an undo; a dictionary is the tree that a write makes."""
    root = tmp_path_factory.mktemp("walk")
    (root / "f").mkdir()  # an empty folder, which a write may fill and an undo must leave
    stack: list[tuple[dict, dict]] = [({}, tree(root))]
    with unsynced():
        for step in steps:
            if step is None:
                if len(stack) > 1:
                    take_back(root)
                    stack.pop()
                    assert tree(root) == stack[-1][1]
                continue
            now = stack[-1][0]
            if journal.write_all(root, changes_between(now, step), label="step"):
                stack.append((step, tree(root)))
            assert {path: data for path, data in tree(root).items() if data is not None} == step
            assert len(records(root)) == len(stack) - 1


@pytest.mark.parametrize("damage", ["bytes", "gone", "json", "outside", "schema"])
def test_a_damaged_record_is_refused_and_named(root: Path, damage: str):
    folder = root / UNDO / "0001"
    record = folder / "record.json"
    content = json.loads(record.read_bytes())
    if damage == "bytes":
        (folder / "0").write_bytes(b"other\n")
    elif damage == "gone":
        record.unlink()
    elif damage == "json":
        record.write_bytes(record.read_bytes()[:40])
    elif damage == "outside":
        content["files"][0]["path"] = "../../a.py"
        record.write_text(json.dumps(content))
    else:
        record.write_text(json.dumps({**content, "schema": 99}))
    with pytest.raises(MigrationError) as error:
        take_back(root)
    assert error.value.code == "MG310" and str(folder) in str(error.value)
    assert tree(root) == NEW_TREE


def test_cut_and_undo_from_the_shell(repository: Path):
    before = git(repository, "status", "--porcelain")
    assert migrate("port", RECIPE, "--cut", "--repo", repository).returncode == 0
    assert ".migrate/undo" not in git(repository, "status", "--porcelain", "--untracked-files=all")
    listed = migrate("undo", "--list", "--repo", repository)
    assert listed.returncode == 0 and "0001 port --cut" in listed.stdout and "app/worker.py" in listed.stdout
    assert " UTC" in listed.stdout
    checked = migrate("undo", "--check", "--repo", repository)
    assert checked.returncode == 1 and "app/worker.py: would be restored" in checked.stdout
    assert "app/parts/cache.py: would be removed" in checked.stdout and labels(repository) != []
    undone = migrate("undo", cwd=repository)
    assert undone.returncode == 0 and "app/worker.py: restored" in undone.stdout, undone.stderr
    assert git(repository, "status", "--porcelain", "--untracked-files=all", "--ignored") == before == ""
    again = migrate("undo", "--repo", repository)
    assert again.returncode == 0 and "nothing to undo" in again.stdout
    assert migrate("undo", "--check", "--repo", repository).returncode == 0


def test_an_edit_since_is_reported_with_the_file_and_the_way_out(repository: Path):
    migrate("port", RECIPE, "--cut", "--repo", repository)
    worker = repository / "app" / "worker.py"
    worker.write_bytes(worker.read_bytes() + b"# mine\n")
    for extra in ((), ("--check",)):
        run = migrate("undo", "--repo", repository, *extra)
        assert run.returncode == 2 and run.stdout == ""
        assert "MG308 app/worker.py" in run.stderr and "keep a copy" in run.stderr
        assert str(repository / UNDO / "0001") in run.stderr
    assert worker.read_bytes().endswith(b"# mine\n")
    run = migrate("undo", "--repo", repository, "--json")
    outcome = json.loads(run.stdout)
    assert run.returncode == 2 and outcome["outcome"] == "refused"
    assert [refusal["path"] for refusal in outcome["refusals"]] == ["app/worker.py"]


def test_json_of_the_list_and_of_an_undo(repository: Path):
    migrate("port", RECIPE, "--cut", "--repo", repository)
    (record,) = json.loads(migrate("undo", "--list", "--json", "--repo", repository).stdout)["records"]
    assert record["name"] == "0001" and record["label"] == f"port --cut {RECIPE}"
    assert {"path": "app/worker.py", "kind": "changed"}.items() <= next(
        file for file in record["files"] if file["path"] == "app/worker.py"
    ).items()
    assert record["time"].endswith("+00:00")
    run = migrate("undo", "--json", "--repo", repository)
    assert json.loads(run.stdout)["outcome"] == "undone" and git(repository, "status", "--porcelain") == ""
    assert json.loads(migrate("undo", "--json", "--repo", repository).stdout)["outcome"] == "nothing"


def test_an_unfinished_write_is_finished_by_the_list_but_not_by_a_check(repository: Path):
    changes = [FileChange("app/new.py", None, b"x = 1\n"), FileChange("app/other.py", None, b"y = 1\n")]
    replaced = []

    def dying(*paths: object) -> None:
        replaced.append(paths)
        if len(replaced) == 3:
            raise Killed
        replace(*paths)

    with pytest.MonkeyPatch.context() as patch:
        replace = journal.os.replace
        patch.setattr(journal.os, "replace", dying)
        with pytest.raises(Killed):
            journal.write_all(repository, changes, label="port --cut kv")
    checked = migrate("undo", "--check", "--repo", repository)
    assert checked.returncode == 3 and "MG305" in checked.stderr and "migrate undo --list" in checked.stderr
    listed = migrate("undo", "--list", "--repo", repository)
    assert listed.returncode == 0 and "now finished: port --cut kv" in listed.stderr
    assert (repository / "app/other.py").exists() and labels(repository) == ["port --cut kv"]


def test_what_undo_keeps_is_no_uncommitted_change(repository: Path):
    """Nor is a write that was interrupted, with its files beside the targets."""
    worker = "app/worker.py"
    before = (repository / worker).read_bytes()
    journal.write_all(repository, [FileChange(worker, before, before + b"\n# x\n")], label="port")
    git(repository, "add", "-A", ".")
    git(repository, "commit", "-qm", "ported")
    assert ".migrate" not in git(repository, "ls-files")
    assert uncommitted(repository, [worker, "app/absent.py"]) == ()
    with pytest.raises(Killed), killed_at(14):
        journal.write_all(repository, [FileChange(worker, before + b"\n# x\n", before)], label="port")
    assert list(repository.rglob("*.migrate-tmp")) and uncommitted(repository, [worker]) == ()


SIGNALLED = """
import os, pathlib, signal, sys
from migration.cli import main
name, late, arguments = sys.argv[1], sys.argv[2] == "late", sys.argv[3:]
for heeded, how in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
    signal.signal(heeded, how)
manifest = pathlib.Path(arguments[-1], ".migrate/undo/journal/manifest.json")
sync, sent = os.fsync, []
def interrupted(descriptor):
    if not sent and manifest.exists() == late:
        sent.append(os.kill(os.getpid(), getattr(signal, name)))
    sync(descriptor)
os.fsync = interrupted
main(arguments)
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize(("when", "said"), [("early", "nothing was written"), ("late", "has been finished")])
def test_a_signal_during_a_write_ends_with_one_line(
    repository: Path, name: str, code: int, when: str, said: str
):
    run = subprocess.run(
        [sys.executable, "-c", SIGNALLED, name, when, "port", RECIPE, "--cut", "--repo", repository],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert run.returncode == code, run.stderr
    assert run.stderr.startswith("migrate: interrupted: ") and said in run.stderr
    assert run.stderr.count("\n") == 1
    assert (git(repository, "status", "--porcelain") == "") == (said == "nothing was written")
