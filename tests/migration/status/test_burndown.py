"""`migrate burndown` on real histories."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.migration.test_cli import migrate

from .conftest import Life
from .lives import burndown, commit, git, start

WORKER = "app/worker.py"
HANDLER = "app/parts/cache.py"


def test_every_commit_that_touched_the_class_or_a_handler_has_a_row(life: Life):
    root = life("cleanup")
    (root / "notes.txt").write_text("no row for this")
    commit(root, "notes")
    value = burndown(root)
    assert [row["subject"] for row in value["rows"]] == ["start", "port", "gate", "cleanup"]
    assert (value["file"], value["class"], value["handlers"]) == (WORKER, "Worker", [HANDLER])


def test_the_numbers_are_those_of_the_files(life: Life):
    root = life("cleanup")
    start_row, port, gate, cleanup = burndown(root)["rows"]
    worker, handler = (root / WORKER).read_text(), (root / HANDLER).read_text()
    assert cleanup["monolith"]["lines"] == len(worker.splitlines())
    assert cleanup["handler_lines"] == port["handler_lines"] == len(handler.splitlines())
    assert start_row["handler_lines"] == 0
    assert port["monolith"] == start_row["monolith"]
    assert (gate["monolith"]["gates"], gate["monolith"]["gated"]) == (1, 4)
    assert gate["monolith"]["methods"] == start_row["monolith"]["methods"] + 4
    assert (cleanup["monolith"]["gates"], cleanup["monolith"]["gated"]) == (0, 0)
    assert cleanup["monolith"]["class_lines"] < start_row["monolith"]["class_lines"]
    assert port["protocols"] == 3 and port["protocol_width"] == 9


def test_since_begins_with_the_state_at_that_revision(life: Life):
    root = life("cleanup")
    rows = burndown(root, "--since", "HEAD~2")["rows"]
    assert [row["subject"] for row in rows] == ["port", "gate", "cleanup"]
    assert rows[0]["handler_lines"] > 0


def test_a_revision_that_is_not_there_is_an_error(life: Life):
    done = migrate("burndown", WORKER, "--repo", life("port"), "--since", "nowhere")
    assert done.returncode == 3
    assert "no history" in done.stderr


def test_a_renamed_file_is_followed(life: Life):
    root = life("start")
    git(root, "mv", "app/worker.py", "app/engine.py")
    commit(root, "rename", 5)
    done = migrate("burndown", "app/engine.py", "--repo", root, "--json")
    value = json.loads(done.stdout)
    assert [row["subject"] for row in value["rows"]] == ["start", "rename"]
    assert value["renamed"] == [{"file": "app/engine.py", "from": "app/worker.py"}]
    assert (
        "app/engine.py was called app/worker.py before"
        in migrate("burndown", "app/engine.py", "--repo", root).stdout
    )


def test_a_merge_is_one_row_and_its_side_line_has_none(life: Life):
    root = life("start")
    git(root, "checkout", "-qb", "side")
    for number in range(2):
        text = (root / WORKER).read_text()
        (root / WORKER).write_text(text + f"SIDE_{number} = {number}\n")
        commit(root, f"side {number}", 6 - number)
    git(root, "checkout", "-q", "main")
    git(root, "merge", "-q", "--no-ff", "-m", "merge", "side", days_ago=3)
    rows = burndown(root)["rows"]
    assert [row["subject"] for row in rows] == ["start", "merge"]
    assert rows[1]["monolith"]["lines"] == rows[0]["monolith"]["lines"] + 2


def test_versions_that_do_not_parse_are_counted_and_shown(life: Life):
    root = life("port")
    good = (root / WORKER).read_text()
    (root / WORKER).write_text(good + "def broken(:\n")
    commit(root, "broken", 8)
    (root / WORKER).write_text(good)
    commit(root, "mended", 7)
    value = burndown(root)
    assert value["not_parsed"] == 1
    broken = value["rows"][-2]
    assert broken["monolith"] is None
    assert broken["faults"][0].startswith(f"{WORKER}: line ")
    shown = migrate("burndown", WORKER, "--repo", root).stdout
    assert "1 of 4 commits hold a version that does not parse" in shown
    assert "?" in next(line for line in shown.splitlines() if "broken" in line)


def test_a_history_of_which_no_version_parses_is_an_error(tmp_path: Path):
    (tmp_path / "worker.py").write_text("class Worker(:\n")
    git(tmp_path, "init", "-q")
    commit(tmp_path, "broken")
    done = migrate("burndown", "worker.py", "--class", "Worker", "--repo", tmp_path)
    assert done.returncode == 3
    assert "none of 1 commits has a version of it that parses" in done.stderr


def test_a_file_that_no_commit_has_is_an_error(life: Life):
    root = life("start")
    (root / "app/new.py").write_text("class New:\n    pass\n")
    done = migrate("burndown", "app/new.py", "--repo", root)
    assert done.returncode == 3
    assert "no commit has it" in done.stderr


def test_without_git_there_is_no_history(life: Life):
    root = life("gate")
    shutil.rmtree(root / ".git")
    done = migrate("burndown", WORKER, "--repo", root)
    assert (done.returncode, done.stdout) == (3, "")
    assert "not a git repository" in done.stderr


def test_the_file_of_the_only_slice_in_the_tree_needs_no_name(life: Life):
    done = migrate("burndown", "--repo", life("gate"))
    assert done.returncode == 0
    assert "Worker in app/worker.py, 3 commits" in done.stdout


def test_where_no_slice_is_of_the_tree_a_file_must_be_named(tmp_path: Path):
    done = migrate("burndown", "--repo", start(tmp_path / "tree"))
    assert done.returncode == 3
    assert "name one" in done.stderr


def test_a_folder_within_the_repository_has_its_own_history(life: Life, tmp_path: Path):
    outer = tmp_path / "outer"
    shutil.copytree(life("start"), outer / "inner", ignore=shutil.ignore_patterns(".git"))
    git(outer, "init", "-q")
    commit(outer, "all")
    assert [row["subject"] for row in burndown(outer / "inner")["rows"]] == ["all"]


def test_a_deleted_class_is_a_row_of_nothing(life: Life):
    root = life("start")
    (root / WORKER).unlink()
    commit(root, "gone")
    rows = burndown(root, "--class", "Worker")["rows"]
    assert rows[-1]["monolith"] is None
    assert rows[-1]["faults"] == []


def long_history(root: Path, commits: int, methods: int) -> Path:
    """A class that loses a method with each commit."""
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    stream = []
    for number in range(commits):
        body = "".join(
            f"    def method_{index}(self):\n"
            + f"        x = hasattr(self, 'a{index}')\n" * 18
            + "        return x\n\n"
            for index in range(methods - number % methods)
        )
        text = f"# version {number}\n\n\nclass Worker:\n    '''Doc.'''\n\n{body}"
        when = 1_700_000_000 + 3600 * number
        message = f"commit {number}"
        stream.append(
            f"commit refs/heads/main\ncommitter t <t@example.com> {when} +0000\ndata {len(message)}\n{message}\n"
            f"M 100644 inline worker.py\ndata {len(text.encode())}\n{text}\n"
        )
    subprocess.run(
        ["git", "-C", str(root), "fast-import", "--quiet"], input="".join(stream), text=True, check=True
    )
    git(root, "checkout", "-qf", "main")
    return root


def test_a_long_history_is_thinned_in_the_table_with_both_ends_kept(tmp_path: Path):
    root = long_history(tmp_path / "long", 130, 140)
    shown = migrate("burndown", "worker.py", "--repo", root).stdout
    rows = [line for line in shown.splitlines() if " commit " in line and "2023-" in line]
    assert len(rows) == 50
    assert rows[0].rstrip().endswith("commit 0") and rows[-1].rstrip().endswith("commit 129")
    assert "80 of 130 commits between these rows are left out" in shown


def test_two_hundred_commits_of_three_thousand_lines_take_seconds(tmp_path: Path):
    root = long_history(tmp_path / "long", 200, 150)
    before = time.monotonic()
    done = migrate("burndown", "worker.py", "--repo", root, "--json")
    took = time.monotonic() - before
    rows = json.loads(done.stdout)["rows"]
    assert len(rows) == 200
    assert rows[0]["monolith"]["lines"] > 3000
    assert rows[0]["monolith"]["asks"] == 150 * 18
    assert took < 10, f"{took:.1f} s; 1.5 s on an idle machine"


def test_objects_come_from_one_process(tmp_path: Path):
    root = long_history(tmp_path / "long", 20, 5)
    count = tmp_path / "count"
    program = (
        "import subprocess, sys\n"
        "real, seen = subprocess.Popen, []\n"
        "class Popen(real):\n"
        "    def __init__(self, command, *a, **k):\n"
        "        seen.append(command)\n"
        "        super().__init__(command, *a, **k)\n"
        "subprocess.Popen = Popen\n"
        "from migration.cli import main\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "finally:\n"
        f"    open({str(count)!r}, 'w').write(str(len(seen)) + ' ' + str(sum('cat-file' in c for c in seen)))\n"
    )
    command = [sys.executable, "-c", program, "burndown", "worker.py", "--repo", str(root), "--json"]
    subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parents[3])
    processes, readers = map(int, count.read_text().split())
    assert readers == 1
    assert processes < 10


def test_nothing_is_written_but_the_page(life: Life, tmp_path: Path):
    root = life("gate")
    before = git(root, "status", "--porcelain", "--ignored")
    page = tmp_path / "pages" / "burndown.html"
    assert migrate("burndown", "--repo", root, "--html", page).returncode == 0
    assert git(root, "status", "--porcelain", "--ignored") == before
    assert [file.name for file in page.parent.iterdir()] == ["burndown.html"]


def test_a_page_that_cannot_be_written_is_an_error(life: Life, tmp_path: Path):
    (tmp_path / "file").write_text("")
    done = migrate("burndown", "--repo", life("gate"), "--html", tmp_path / "file" / "page.html")
    assert done.returncode == 3
    assert "cannot write the report" in done.stderr


def test_the_file_may_be_named_by_its_whole_path(life: Life):
    root = life("port")
    done = migrate("burndown", root / WORKER, "--repo", root, "--json")
    assert json.loads(done.stdout)["file"] == WORKER


@pytest.mark.parametrize(
    ("moment", "exists"), [("migration.burndown.measure.cut", False), ("os.replace", True)]
)
def test_ctrl_c_leaves_a_whole_page_or_none(life: Life, tmp_path: Path, moment: str, exists: bool):
    page = tmp_path / "pages" / "page.html"
    module = moment.rpartition(".")[0]
    program = (
        f"import os, signal, sys, {module}\n"
        f"real = {moment}\n"
        "def late(*a):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(*a)\n"
        f"{moment} = late\n"
        "from migration.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", program, "burndown", "--repo", str(life("gate")), "--html", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 130, done.stderr
    assert [file.name for file in tmp_path.glob("pages/*")] == (["page.html"] if exists else [])
    assert not exists or page.read_text().rstrip().endswith("</html>")


@pytest.mark.parametrize("command", ["status", "burndown"])
def test_help_has_examples_and_exit_codes(command: str):
    done = migrate(command, "--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout and "exit codes:" in done.stdout


@pytest.mark.parametrize("command", ["status", "burndown"])
def test_an_unknown_option_is_a_usage_error(command: str):
    assert migrate(command, "--nonsense").returncode == 64
