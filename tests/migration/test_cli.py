"""`migrate` as a user meets it: exit codes, patches, the guard for uncommitted work, start-up."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from migration.ledger.journal import JOURNAL

from .golden_cases import GOLDEN, files

CASE = GOLDEN / "handles"
RECIPE = CASE / "slice.toml"


def migrate(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from migration.cli import main; main()", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    return subprocess.run(
        ["git", "-C", str(root), *identity, *arguments], capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the case before its cut, under no version control."""
    root = tmp_path / "tree"
    shutil.copytree(CASE / "before", root, ignore=shutil.ignore_patterns("__pycache__"))
    return root


@pytest.fixture
def repository(tree: Path) -> Path:
    git(tree, "init", "-q")
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "start")
    return tree


def test_cut_writes_and_a_second_one_does_nothing(tree: Path):
    run = migrate("port", RECIPE, "--cut", "--root", tree)
    assert run.returncode == 0, run.stderr
    assert files(tree) == files(CASE / "after")
    assert not (tree / JOURNAL).exists()
    again = migrate("port", RECIPE, "--cut", "--root", tree)
    assert (again.returncode, "nothing to do" in again.stdout) == (0, True)
    assert files(tree) == files(CASE / "after")


def test_check_and_diff_write_nothing(tree: Path):
    assert migrate("port", RECIPE, "--cut", "--root", tree, "--check").returncode == 1
    assert migrate("port", RECIPE, "--cut", "--root", tree, "--diff").returncode == 0
    assert files(tree) == files(CASE / "before")
    migrate("port", RECIPE, "--cut", "--root", tree)
    assert migrate("port", RECIPE, "--cut", "--root", tree, "--check").returncode == 0
    assert migrate("port", RECIPE, "--cut", "--root", tree, "--diff").stdout.startswith(
        "handles: nothing to do"
    )


@pytest.mark.parametrize("case", ["handles", "layout", "imports", "signatures"])
def test_git_applies_the_diff_to_the_same_tree(case: str, tmp_path: Path):
    folder = GOLDEN / case
    root = tmp_path / "tree"
    shutil.copytree(folder / "before", root, ignore=shutil.ignore_patterns("__pycache__"))
    git(root, "init", "-q")
    run = migrate("port", folder / "slice.toml", "--cut", "--root", root, "--diff")
    (tmp_path / "cut.patch").write_text(run.stdout, encoding="utf-8")
    git(root, "apply", "--whitespace=nowarn", str(tmp_path / "cut.patch"))
    assert files(root) == files(folder / "after")


def test_refusal_exits_2_writes_nothing_and_names_a_way_out(tmp_path: Path):
    shutil.copytree(GOLDEN / "refusals" / "before", tmp_path / "tree")
    run = migrate("port", GOLDEN / "refusals" / "slice.toml", "--cut", "--root", tmp_path / "tree")
    assert run.returncode == 2
    assert "MG001" in run.stdout and "list the method in `stays`" in run.stdout
    assert files(tmp_path / "tree") == files(GOLDEN / "refusals" / "before")
    run = migrate("port", GOLDEN / "refusals" / "slice.toml", "--cut", "--root", tmp_path / "tree", "--json")
    first = json.loads(run.stdout)["refusals"][0]
    assert run.returncode == 2
    assert (first["code"], first["where"], first["line"]) == ("MG001", "own_class", 36) and first["way_out"]


def test_json_carries_members_with_evidence_and_the_patch(tree: Path):
    run = migrate("port", RECIPE, "--cut", "--root", tree, "--check", "--json")
    outcome = json.loads(run.stdout)
    assert (run.returncode, outcome["outcome"]) == (1, "planned")
    pools = outcome["handles"][0]
    assert pools["protocol"] == "PoolState"
    (pool,) = [member for member in pools["members"] if member["name"] == "pool"]
    assert pool["written"] and pool["evidence"] == "annotation" and "ensure:32" in pool["used_by"]
    assert outcome["diff"].startswith("diff --git a/app/parts/cache.py")
    assert dict(outcome["renames"]) == {"pools": 7, "tables": 4, "worker": 3}
    assert [detail["name"] for detail in outcome["proof"]["details"]] == outcome["methods"]


@pytest.mark.parametrize("path", ["app/worker.py", "app/__init__.py"])
def test_uncommitted_changes_are_refused(repository: Path, path: str):
    (repository / path).write_bytes((repository / path).read_bytes() + b"\n# mine\n")
    before = files(repository)
    run = migrate("port", RECIPE, "--cut", "--root", repository)
    assert run.returncode == 3 and "MG304" in run.stderr and path in run.stderr
    assert files(repository) == before
    assert migrate("port", RECIPE, "--cut", "--root", repository, "--check").returncode == 1
    assert migrate("port", RECIPE, "--cut", "--root", repository, "--allow-dirty").returncode == 0


def test_committed_work_and_foreign_files_do_not_stop_a_cut(repository: Path):
    (repository / "notes.txt").write_text("untracked")
    assert migrate("port", RECIPE, "--cut", "--root", repository).returncode == 0


def test_untracked_worker_is_refused(repository: Path):
    git(repository, "rm", "-q", "--cached", "app/worker.py")
    git(repository, "commit", "-qm", "forget the worker")
    run = migrate("port", RECIPE, "--cut", "--root", repository)
    assert run.returncode == 3 and "app/worker.py" in run.stderr


def test_scratch_copy_that_git_ignores_is_not_guarded(repository: Path):
    (repository / ".gitignore").write_text("out/\n")
    (repository / "app" / "worker.py").write_text("dirty = 1\n")
    shutil.copytree(CASE / "before", repository / "out" / "scratch")
    run = migrate("port", RECIPE, "--cut", "--root", repository / "out" / "scratch")
    assert run.returncode == 0, run.stderr


def test_an_interrupted_write_is_finished_by_the_next_run(tree: Path):
    worker = tree / "app" / "worker.py"
    script = f"""
import os
from pathlib import Path
from migration.ledger import journal
from migration.slices import load_recipe
from migration.move.cut import plan_cut
from migration.code.tree import DiskTree
root = Path({str(tree)!r})
replace, left = os.replace, [2]
def dying(*args):
    left[0] -= 1
    if left[0] < 0:
        os._exit(9)
    replace(*args)
os.replace = dying
journal.write_all(root, plan_cut(load_recipe({str(RECIPE)!r}), DiskTree(root)).changes, label="port")
"""
    repository = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", script], cwd=repository, check=False).returncode == 9
    assert worker.read_bytes() == (CASE / "before" / "app" / "worker.py").read_bytes()
    looked = migrate("port", RECIPE, "--cut", "--root", tree, "--diff")
    assert looked.returncode == 3 and "MG305" in looked.stderr
    assert migrate("port", RECIPE, "--cut", "--root", tree).returncode == 0
    assert files(tree) == files(CASE / "after")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("port",),
        ("port", "kv", "--cut", "--check", "--diff"),
        ("inventory",),
        ("inventory", "a.py", "b.py"),
        ("cleanup",),
    ],
)
def test_wrong_usage_exits_64(arguments: tuple[str, ...], tmp_path: Path):
    run = migrate(*arguments, cwd=tmp_path)
    assert run.returncode == 64 and run.stdout == "" and "usage: migrate" in run.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("port", "nowhere", "--cut"), "MG402"),
        (("port", "kv", "--cut", "--root", "/nonexistent"), "MG303"),
        (("inventory", "/nonexistent.py"), "MG303"),
        (("inventory", __file__, "--class", "Nothing"), "MG102"),
    ],
)
def test_errors_exit_3_with_a_code_and_a_way_out(arguments: tuple[str, ...], code: str, tmp_path: Path):
    run = migrate(*arguments, cwd=tmp_path)
    assert run.returncode == 3 and code in run.stderr and "way out:" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_tree_that_cannot_be_written_is_one_line(tree: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    from migration import cli
    from migration.commands import writing

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "app/worker.py")

    monkeypatch.setattr(writing, "write_all", full)
    with pytest.raises(SystemExit) as exit_:
        cli.main(["port", str(RECIPE), "--cut", "--root", str(tree)])
    assert exit_.value.code == 3
    assert capsys.readouterr().err == "migrate: No space left on device: app/worker.py\n"


@pytest.mark.parametrize("more", [[], ["--hasattr"], ["--json"]])
def test_a_command_leaves_the_collector_of_its_process_as_it_was(tree: Path, more: list[str]):
    from migration import cli

    before = (gc.isenabled(), gc.get_threshold())
    with pytest.raises(SystemExit) as exit_:
        cli.main(["inventory", str(tree / "app" / "worker.py"), "--root", str(tree), *more])
    assert exit_.value.code == 0
    assert (gc.isenabled(), gc.get_threshold()) == before == (True, before[1])


@pytest.mark.parametrize("command", ["inventory", "declare"])
def test_a_file_without_a_class_is_said_to_have_none(tree: Path, command: str):
    (tree / "app" / "plain.py").write_text("X = 1\n")
    arguments = ["app/plain.py"]
    run = migrate(command, *arguments, cwd=tree)
    assert run.returncode == 3 and "MG102 " in run.stderr
    assert "plain.py: no module-level class\n" in run.stderr


def test_start_up_loads_no_heavy_module():
    script = """
import sys
from migration.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
heavy = {"libcst", "rich", "typer", "pyflakes", "torch", "batchgen"}
print(sorted({name.partition(".")[0] for name in sys.modules} & heavy))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.endswith("[]\n")


def test_a_reader_that_has_seen_enough_is_no_error():
    command = f"{sys.executable} -c 'from migration.cli import main; main()' explain | head -1; echo ${{PIPESTATUS[0]}}"
    run = subprocess.run(
        ["bash", "-c", command], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert run.stdout.splitlines()[-1] in ("0", "141") and run.stderr == ""
