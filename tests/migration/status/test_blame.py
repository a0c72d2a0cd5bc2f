"""`migrate port --commits` on real repositories: what `git blame` says afterwards is counted here once more."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from migration.blame.kept import count_kept
from migration.blame.landing import Measured, choose
from migration.blame.objects import Built
from migration.blame.ways import Way
from tests.migration.test_cli import migrate

from .lives import commit, git

WORKER, HANDLER = "app/worker.py", "app/parts/cache.py"
RECIPE_TEXT = """
schema = 1
name = "cache"

[source]
file = "app/worker.py"
class = "Worker"
section = "Cache"

[target]
file = "app/parts/cache.py"
class = "CacheManager"
siblings = "handler"

[[handles]]
name = "pool"
protocol = "Pool"
doc = "The pages."
attributes = ["pages"]

[[handles]]
name = "worker"
protocol = "WorkerView"
doc = "The rest."
rest = true
"""


def method(number: int) -> str:
    """Lines that change in the port between lines that do not, some of them short."""
    return f'''
    def reserve_{number}(self, wanted: int) -> list[int]:
        """Reserve pages for sequence number {number} and say which they are, lowest first."""
        taken: list[int] = []
        for page in sorted(self.pages):
            if page % {number + 2} == 0:
                continue
            self.pages.discard(page)
            taken.append(page)
            if len(taken) == wanted:
                break
        self.counter += {number}
        total = sum(taken) + {number}
        if total < 0:
            raise ValueError(f"reserve_{number}: a negative page number among {{taken}}")
        return taken
'''


HEAD = '''"""A worker."""


class Worker:
    def __init__(self) -> None:
        self.pages = {1, 2, 3}
        self.counter = 0

    # ============ Cache ============
'''


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A class to which six commits gave a method each."""
    return grown(tmp_path / "tree")


def grown(root: Path, indent: str = "    ", folder: str = "") -> Path:
    base = root / folder
    (base / "app").mkdir(parents=True)
    (base / "app/__init__.py").write_text("")
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.name", "porter")
    git(root, "config", "user.email", "porter@example.com")
    text = HEAD
    for number in range(6):
        text += method(number)
        (base / WORKER).write_text(text.replace("    ", indent))
        commit(root, f"reserve_{number}", 20 - number)
    (root.parent / "cache.toml").write_text(RECIPE_TEXT)
    return root


def recipe(root: Path) -> Path:
    return root.parent / "cache.toml"


def port(root: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = migrate("port", recipe(root), "--commits", "--repo", root, "--json", *arguments)
    assert done.returncode == code, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def blamed(root: Path, path: str, *options: str, at: str = "HEAD") -> list[tuple[str, str]]:
    """(commit, text) of each line."""
    said = git(root, "blame", "--line-porcelain", *options, at, "--", path)
    return re.findall(r"^([0-9a-f]{40}) .*\n(?:[^\t].*\n)*\t(.*)$", said, re.MULTILINE)


def in_methods(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """From the first moved method on, without the blank lines between methods."""
    start = next(i for i, (_, text) in enumerate(lines) if "def reserve_0" in text)
    body = lines[start:]
    return [
        line
        for i, line in enumerate(body)
        if line[1] or not (i + 1 == len(body) or body[i + 1][1].lstrip().startswith("def "))
    ]


def test_the_port_is_committed_and_the_tree_is_clean(repository: Path):
    before = git(repository, "rev-parse", "HEAD").strip()
    value = port(repository)
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "rev-parse", "HEAD").strip() == value["commits"][-1]
    assert git(repository, "rev-parse", "HEAD^1").strip() == before
    assert git(repository, "symbolic-ref", "HEAD").strip() == "refs/heads/main"
    assert migrate("verify", "--repo", repository).returncode == 0


def test_the_result_is_that_of_a_port_without_commits(repository: Path, tmp_path: Path):
    port(repository)
    other = grown(tmp_path / "other")
    assert migrate("port", recipe(other), "--repo", other).returncode == 0
    for path in git(repository, "diff", "--name-only", "HEAD^1").split():
        assert (other / path).read_bytes() == (repository / path).read_bytes()


def test_the_share_that_is_printed_is_what_blame_says(repository: Path):
    value = port(repository)
    new = set(value["commits"])
    taken = next(way for way in value["blame"]["ways"] if way["way"] == value["blame"]["way"])
    for name, options in (
        ("-C -C", ("-C", "-C")),
        ("-w -C -C", ("-w", "-C", "-C")),
        ("-w -C -C --ignore-rev", ("-w", "-C", "-C", "--ignore-rev", value["blame"]["edit"])),
    ):
        lines = in_methods(blamed(repository, HANDLER, *options))
        assert len(lines) == value["blame"]["lines"]
        assert sum(owner not in new for owner, _ in lines) == taken["kept"][name]


def test_both_ways_of_moving_are_measured_beside_the_single_commit(repository: Path):
    value = port(repository)
    ways = {way["way"]: way for way in value["blame"]["ways"]}
    assert {name: way["commits"] for name, way in ways.items()} == {"one": 1, "move": 2, "rename": 3}
    plain = {name: way["kept"]["-C -C"] for name, way in ways.items()}
    assert plain["move"] == plain["one"] < plain["rename"]
    assert ways["one"]["kept"]["-w -C -C --ignore-rev"] is None
    assert value["blame"]["way"] == "rename"
    assert ways["rename"]["kept"]["-w -C -C --ignore-rev"] > 0.95 * value["blame"]["lines"]


def test_every_line_that_the_port_did_not_edit_keeps_its_very_commit(repository: Path):
    truth = {(text, owner) for owner, text in blamed(repository, WORKER)}
    texts = {text for text, _ in truth}
    value = port(repository)
    kept = in_methods(blamed(repository, HANDLER, "-C", "-C"))
    unedited = [(text, owner) for owner, text in kept if text in texts]
    assert len(unedited) > 60
    assert set(unedited) <= truth
    assert not {owner for owner, text in kept if text in texts} & set(value["commits"])


def test_the_class_keeps_its_own_blame(repository: Path):
    before = blamed(repository, WORKER)
    port(repository)
    assert blamed(repository, WORKER) == before


@pytest.mark.parametrize(("way", "commits", "parents"), [("one", 1, 1), ("move", 2, 1), ("rename", 3, 2)])
def test_a_way_can_be_named(repository: Path, way: str, commits: int, parents: int):
    value = port(repository, "--way", way)
    assert (value["blame"]["way"], len(value["commits"])) == (way, commits)
    assert len(git(repository, "log", "-1", "--format=%P").split()) == parents
    assert git(repository, "status", "--porcelain") == ""


def test_the_copy_of_the_move_has_the_bodies_as_they_stand(repository: Path):
    copy, _ = port(repository, "--way", "move")["commits"]
    text = git(repository, "show", f"{copy}:{HANDLER}")
    assert method(3).strip("\n") in text
    assert git(repository, "diff", "--name-only", f"{copy}^", copy).split() == [HANDLER]
    compile(text, HANDLER, "exec")


def test_the_rename_of_the_side_line_is_one_that_git_sees(repository: Path):
    rename, _, _ = port(repository, "--way", "rename")["commits"]
    shown = git(repository, "show", "-M", "--name-status", "--format=", rename)
    assert shown.split() == ["R100", WORKER, HANDLER]


def test_a_class_with_other_indentation_than_its_handler_is_not_copied_as_it_stands(tmp_path: Path):
    root = grown(tmp_path / "tree", indent="\t")
    value = port(root)
    assert [way["way"] for way in value["blame"]["not_open"]] == ["move"]
    assert value["blame"]["way"] == "rename"
    done = migrate(
        "port", recipe(root), "--commits", "--way", "move", "--repo", grown(tmp_path / "again", "\t")
    )
    assert done.returncode == 3
    assert "the way move is not open" in done.stderr


def test_a_later_part_keeps_its_lines_although_the_handler_is_there_already(repository: Path):
    budgeted = recipe(repository)
    budgeted.write_text(RECIPE_TEXT + "\n[port]\nbudget = 110\n")
    first = port(repository)
    assert first["part"] == "a" and first["left"]
    second = port(repository)
    ways = {way["way"]: way["kept"]["-C -C"] for way in second["blame"]["ways"]}
    assert ways["one"] < ways["rename"]
    assert second["blame"]["way"] == "rename"
    assert git(repository, "status", "--porcelain") == ""
    assert migrate("verify", "--repo", repository).returncode == 0
    own = {text: owner for owner, text in blamed(repository, WORKER) if "sequence number" in text}
    assert {text: owner for owner, text in blamed(repository, HANDLER, "-C", "-C") if text in own} == own


def test_the_terminal_shows_the_shares_and_the_way_that_was_taken(repository: Path):
    shown = migrate("port", recipe(repository), "--commits", "--repo", repository).stdout
    assert re.search(r"one +1 +\d+ \(\d+\.\d%\)", shown)
    assert re.search(r"rename +3 .* taken", shown)
    assert "--ignore-rev" in shown and "a squash or a rebase would lose the side line" in shown


def test_a_second_run_commits_nothing(repository: Path):
    port(repository)
    head = git(repository, "rev-parse", "HEAD")
    done = migrate("port", recipe(repository), "--commits", "--repo", repository)
    assert (done.returncode, done.stdout.strip()) == (0, "port cache: nothing to do")
    assert git(repository, "rev-parse", "HEAD") == head


def unchanged(root: Path, *arguments: str, environment: dict[str, str] | None = None) -> str:
    """What a port that must not be made says; nothing is written and nothing committed."""
    head = git(root, "rev-parse", "HEAD")
    status = git(root, "status", "--porcelain")
    command = [sys.executable, "-c", "from migration.cli import main; main()"]
    command += ["port", str(recipe(root)), "--commits", "--repo", str(root), *arguments]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[3],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3, done.stderr
    assert git(root, "rev-parse", "HEAD") == head
    assert git(root, "status", "--porcelain") == status
    assert not (root / HANDLER).exists()
    return done.stderr


def test_edits_of_the_class_that_are_not_committed_refuse_it(repository: Path):
    file = repository / WORKER
    file.write_text(file.read_text() + "\nX = 1\n")
    assert "not committed as it is" in unchanged(repository, "--allow-dirty")


def test_other_edits_refuse_it_unless_they_are_allowed_and_stay_out_of_the_commit(repository: Path):
    (repository / "app/__init__.py").write_text("X = 1\n")
    git(repository, "add", "app/__init__.py")
    assert "MG304" in unchanged(repository)
    value = port(repository, "--allow-dirty")
    assert git(repository, "status", "--porcelain") == "M  app/__init__.py\n"
    assert git(repository, "show", f"{value['commits'][-1]}:app/__init__.py") == ""


def test_a_merge_under_way_refuses_it(repository: Path):
    (repository / ".git/MERGE_HEAD").write_text(git(repository, "rev-parse", "HEAD"))
    assert "MERGE_HEAD is there" in unchanged(repository)


def test_without_a_name_to_commit_under_nothing_is_written(repository: Path):
    git(repository, "config", "--unset", "user.name")
    git(repository, "config", "--unset", "user.email")
    git(repository, "config", "user.useConfigOnly", "true")
    nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "EMAIL": ""}
    assert "not committed:" in unchanged(repository, environment=nobody)


def test_without_git_nothing_is_written(tmp_path: Path):
    root = grown(tmp_path / "tree")
    (root / ".git").rename(tmp_path / "git")
    done = migrate("port", recipe(root), "--commits", "--repo", root)
    assert done.returncode == 3
    assert "not a git repository" in done.stderr
    assert not (root / HANDLER).exists()


def test_a_folder_within_the_repository_can_be_ported(tmp_path: Path):
    root = grown(tmp_path / "tree", folder="inner")
    done = migrate("port", recipe(root), "--commits", "--repo", root / "inner", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["blame"]["way"] == "rename"
    assert git(root, "status", "--porcelain") == ""
    assert (
        f"inner/{HANDLER}" in git(root, "show", "--first-parent", "--name-only", "--format=", "HEAD").split()
    )


def test_where_git_refuses_at_the_last_moment_it_says_that_the_files_are_written(repository: Path):
    head = git(repository, "rev-parse", "HEAD")
    (repository / ".git/index.lock").write_text("")
    done = migrate("port", recipe(repository), "--commits", "--repo", repository)
    assert done.returncode == 3
    assert "not committed: the files are written all the same" in done.stderr
    assert git(repository, "rev-parse", "HEAD") == head
    assert (repository / HANDLER).is_file()


def interrupted(root: Path, patch: str) -> subprocess.CompletedProcess[str]:
    """The command with Ctrl-C at a chosen moment."""
    program = f"import os, signal, sys\n{patch}\nfrom migration.cli import main\nmain(sys.argv[1:])\n"
    command = [sys.executable, "-c", program, "port", str(recipe(root)), "--commits", "--repo", str(root)]
    return subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True)


def test_ctrl_c_while_it_measures_leaves_the_old_tree(repository: Path):
    head = git(repository, "rev-parse", "HEAD")
    patch = (
        "import migration.blame.landing as landing\n"
        "landing.kept = lambda *a: os.kill(os.getpid(), signal.SIGINT) or 0\n"
    )
    done = interrupted(repository, patch)
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    assert git(repository, "rev-parse", "HEAD") == head
    assert git(repository, "status", "--porcelain") == ""
    assert not (repository / HANDLER).exists()


@pytest.mark.parametrize("where", ["commits.write", "commits.publish"])
def test_ctrl_c_while_it_writes_leaves_the_new_tree_with_its_commit(repository: Path, where: str):
    name = where.partition(".")[2]
    patch = (
        "import migration.blame.commits as commits\n"
        f"real = commits.{name}\n"
        "def late(*a):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(*a)\n"
        f"commits.{name} = late\n"
    )
    done = interrupted(repository, patch)
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "log", "-1", "--format=%s").startswith("Port cache")


def test_ctrl_c_within_the_write_itself_leaves_the_new_tree_with_its_commit(repository: Path):
    patch = (
        "import migration.ledger.journal as journal\n"
        "real = journal._complete\n"
        "def late(*a):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(*a)\n"
        "journal._complete = late\n"
    )
    done = interrupted(repository, patch)
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "log", "-1", "--format=%s").startswith("Port cache")


@pytest.mark.parametrize(
    "arguments", [("--commits", "--cut"), ("--commits", "--diff"), ("--commits", "--check"), ("--way", "one")]
)
def test_what_does_not_go_together_is_a_usage_error(repository: Path, arguments: tuple[str, ...]):
    assert migrate("port", recipe(repository), *arguments, "--repo", repository).returncode == 64


def measured(name: str, plain: int, spaces: int, commits: int) -> Measured:
    return Measured(Built(Way(name, (), None, None), ("c",) * commits, "t", None), plain, spaces, None)


@pytest.mark.parametrize(
    ("others", "best"),
    [
        ([("one", 5, 5, 1), ("move", 5, 5, 2)], "one"),
        ([("one", 5, 5, 1), ("move", 6, 6, 2)], "move"),
        ([("one", 5, 5, 1), ("move", 5, 6, 2)], "move"),
        ([("one", 5, 9, 1), ("rename", 6, 6, 3)], "rename"),
    ],
)
def test_the_way_that_keeps_most_is_taken_and_of_equal_ones_the_shortest(
    others: list[tuple[str, int, int, int]], best: str
):
    assert choose([measured(*one) for one in others]).name == best


def test_lines_that_blame_does_not_speak_of_are_an_error():
    said = b"a" * 40 + b" 1 1 1\n\ttext\n"
    assert count_kept(said, {1}, set()) == 1
    with pytest.raises(ValueError, match="line 2"):
        count_kept(said, {1, 2}, set())
