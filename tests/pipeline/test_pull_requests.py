"""Pull requests of a small repository: branches, checks, the page; and what stands in the way of one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.migration.status.lives import commit, git

from .repository import CACHE, CLOCK, TEST, TESTS, WORKER, branches, pipeline, repository, user_state, write

PAGE = "out/pr/{}.md"


def page(root: Path, name: str) -> str:
    return (root / PAGE.format(name)).read_text(encoding="utf-8")


def test_the_phases_stack_on_scratch_branches_and_nothing_of_the_user_changes(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    before = user_state(root)
    done = pipeline(root, "pr", "2.2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert user_state(root) == before
    found = branches(root)
    order = ["base", "1.1", "1.2", "1.3", "2.1", "2.2"]
    assert sorted(found) == sorted(order)
    for above, below in zip(order[1:], order, strict=False):
        assert git(root, "rev-parse", f"migrate/{above}^").strip() == found[below]
    assert git(root, "rev-parse", "migrate/base^").strip() == git(root, "rev-parse", "HEAD").strip()
    assert "_legacy__tick" in git(root, "show", "migrate/2.2:app/worker.py")
    assert "_legacy__grow" not in git(root, "show", "migrate/1.3:app/worker.py")
    shown = page(root, "2.2")
    assert "holds: 2 methods" in shown.splitlines()[0]
    assert "| verify | pass | 5 | clock holds, cache holds |" in shown
    for expected in (
        "_elapsed | gated: ",
        "clock: holds: 2 methods",
        "## Pre-merge checklist: clock, phase gate",
    ):
        assert expected in shown


def test_again_moves_nothing_and_a_new_commit_moves_all(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    assert pipeline(root, "pr", "1.2").returncode == 0
    first = branches(root)
    assert pipeline(root, "pr", "1.1").returncode == 0
    assert branches(root) == first
    write(root, "app/worker.py", WORKER.replace("limit = 4", "limit = 5"))
    commit(root, "another limit")
    assert pipeline(root, "pr", "1.1").returncode == 0
    moved = branches(root)
    assert moved["base"] != first["base"] and moved["1.1"] != first["1.1"]
    assert "limit = 5" in git(root, "show", "migrate/1.1:app/worker.py")
    assert moved["1.2"] == first["1.2"]  # nobody asked for it: it follows with `pr 1.2`
    assert pipeline(root, "pr", "1.2").returncode == 0
    assert git(root, "rev-parse", "migrate/1.2^").strip() == moved["1.1"]


def test_main_that_has_the_slices_gives_the_same_pull_requests(tmp_path: Path) -> None:
    fresh = repository(tmp_path / "fresh")
    assert pipeline(fresh, "pr", "2.1").returncode == 0
    landed = repository(tmp_path / "landed")
    text = (landed / "pipeline.toml").read_text()
    write(landed, "pipeline.toml", text.replace("number = 1", 'number = 1\nmain = "gate"'))
    assert pipeline(landed, "land").returncode == 0
    commit(landed, "slice 1 is gated")
    assert pipeline(landed, "pr", "2.1").returncode == 0
    for name in ("1.1", "1.3", "2.1"):
        trees = [git(root, "rev-parse", f"migrate/{name}:app") for root in (fresh, landed)]
        assert trees[0] == trees[1]


def test_a_port_over_its_budget_is_a_pull_request_in_parts_each_checked_on_its_own(tmp_path: Path) -> None:
    recipe = CACHE.replace("[gate]", "[port]\nbudget = 45\n\n[gate]") + TESTS
    root = repository(tmp_path / "repo", {"slices/cache.toml": recipe})
    done = pipeline(root, "pr", "1.1", "--json")
    assert done.returncode == 0, page(root, "1.1")
    found = branches(root)
    assert found["1.1"] == found["1.1b"] and git(root, "rev-parse", "migrate/1.1b^").strip() == found["1.1a"]
    report = json.loads(done.stdout)["report"]
    assert "in 2 parts" in report["verdict"]["headline"]
    assert [check["name"] for check in report["checks"]] == [
        f"{step} ({part})" for part in "ab" for step in ("verify", "check", "tests")
    ]
    assert [check["detail"].split(" in ")[0].strip("= ") for check in report["checks"][2::3]] == [
        "1 passed"
    ] * 2
    (lines,) = [table["rows"] for table in report["tables"] if table["title"] == "Changed lines"]
    added = {part: int(plus) for part, path, plus, _ in lines if path == "app/parts/cache.py"}
    assert added.keys() == {"1.1a", "1.1b"} and all(0 < count <= 45 for count in added.values())


def test_what_is_not_committed_is_refused_or_taken_along(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    write(root, "app/worker.py", WORKER.replace("limit = 4", "limit = 6"))
    before = user_state(root)
    refused = pipeline(root, "pr", "1.1")
    assert refused.returncode == 2 and not branches(root)
    assert refused.stderr == (
        "pipeline: not committed: app/worker.py; the pull requests start from HEAD: commit first, "
        "or pass --work-tree\n"
    )
    assert pipeline(root, "pr", "1.1", "--work-tree").returncode == 0
    assert "limit = 6" in git(root, "show", "migrate/1.1:app/worker.py")
    assert user_state(root) == before


TESTED = {"slices/cache.toml": CACHE + TESTS}
FAILING = TEST.replace("(1, True)", "(2, True)")
GONE = {"slices/cache.toml": CACHE + TESTS.replace("test_worker", "test_gone")}
AGAIN = "again: pytest tests/test_worker.py"
NEVER = '\n[[checklist.items]]\ntitle = "Nothing is held."\nrule = "forbidden-reference"\nnames = ["held"]\n'


@pytest.mark.parametrize(
    ("files", "code", "headline", "hint"),
    [
        ({"slices/cache.toml": CACHE + NEVER}, 1, "not to be merged: check;", "again: migrate check "),
        ({**TESTED, "tests/test_worker.py": FAILING}, 1, "not to be merged: tests;", AGAIN),
        ({**TESTED, "tests/test_worker.py": "# none\n"}, 3, "not to be merged: tests;", AGAIN),
        (GONE, 2, "not to be merged: tests;", "again: pytest tests/test_gone.py"),
    ],
)
def test_a_step_that_fails_is_on_the_page_and_in_the_exit_code(
    files: dict[str, str], code: int, headline: str, hint: str, tmp_path: Path
) -> None:
    root = repository(tmp_path / "repo", files)
    done = pipeline(root, "pr", "1.1")
    assert done.returncode == code
    shown = page(root, "1.1")
    assert headline in shown.splitlines()[0] and hint in shown
    assert headline in done.stdout


def test_a_phase_that_is_refused_is_one_line_with_the_way_out(tmp_path: Path) -> None:
    worker = WORKER.replace("freed = 0", "global LAST\n\t\tfreed = LAST = 0")
    root = repository(tmp_path / "repo", {"app/worker.py": worker})
    done = pipeline(root, "pr", "1.1")
    assert done.returncode == 2 and not branches(root)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("pipeline:")]
    assert "1.1 (port cache) is refused: MG003 _evict:" in line and "way out: " in line


def test_a_branch_with_somebodys_work_is_left_alone(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    assert pipeline(root, "pr", "1.1").returncode == 0
    tip = git(root, "commit-tree", "migrate/1.1^{tree}", "-p", "migrate/1.1", "-m", "my own fix").strip()
    git(root, "update-ref", "refs/heads/migrate/1.1", tip)
    before = branches(root)
    refused = pipeline(root, "pr", "1.2")
    assert refused.returncode == 2 and branches(root) == before
    assert f"migrate/1.1 has work of somebody in it ({tip[:10]} 'my own fix')" in refused.stderr
    git(root, "branch", "-m", "migrate/1.1", "mine")
    assert pipeline(root, "pr", "1.2").returncode == 0


def test_a_commit_that_somebody_amended_is_somebodys_work(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    assert pipeline(root, "pr", "1.1").returncode == 0
    other = tmp_path / "other"
    git(root, "worktree", "add", "-q", str(other), "migrate/1.1")
    write(other, "app/parts/cache.py", (other / "app/parts/cache.py").read_text() + "\nMINE = 1\n")
    git(other, "commit", "-qa", "--amend", "--no-edit")
    git(root, "worktree", "remove", str(other))
    refused = pipeline(root, "pr", "1.1")
    assert refused.returncode == 2 and "has work of somebody in it" in refused.stderr
    assert "MINE" in git(root, "show", "migrate/1.1:app/parts/cache.py")


def test_a_branch_that_is_checked_out_does_not_move_under_its_user(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    assert pipeline(root, "pr", "1.1").returncode == 0
    other = tmp_path / "other"
    git(root, "worktree", "add", "-q", str(other), "migrate/1.1")
    assert pipeline(root, "pr", "1.1").returncode == 0  # it stays where it is
    write(root, "app/worker.py", WORKER.replace("limit = 4", "limit = 5"))
    commit(root, "another limit")
    before = branches(root)
    refused = pipeline(root, "pr", "1.1")
    assert refused.returncode == 2 and branches(root) == before
    assert f"migrate/1.1 is checked out in {other}" in refused.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("schema = 1", "schema = 2"), "schema: this version reads 1, not 2"),
        (("golden = true", "gilded = true"), "slices[0].gilded: unknown entry"),
        (("number = 2\n", ""), "slices[1].number: missing"),
        (("number = 2", 'number = "2"'), "slices[1].number: must be int, is '2'"),
        (("number = 2", "number = 1"), "slices[1].number: 1 is there twice"),
        (("number = 2", 'number = 2\nmain = "gated"'), "slices[1].main: must be one of port, gate, cleanup"),
        (("slices/clock.toml", "slices/clok.toml"), "no slice "),
        (
            ('worker = "app', 'worker = "lib'),
            "slices[0].recipe: cache is of app/worker.py, not lib/worker.py",
        ),
        (("[[slices]]", "[slices"), "pipeline.toml: "),
    ],
)
def test_what_is_wrong_with_the_configuration_is_one_line(
    change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    root = repository(tmp_path / "repo")
    write(root, "pipeline.toml", (root / "pipeline.toml").read_text().replace(*change))
    done = pipeline(root, "land", "--check")
    assert done.returncode == 3 and said in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [("pr", "5"), ("pr", "1.4"), ("pr",), ("prs", "1.1"), ("pr", "1.1", "--scale", "big")]
)
def test_usage_errors_are_64(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = pipeline(repository(tmp_path / "repo"), *arguments)
    assert done.returncode == 64 and done.stderr


def test_a_slice_that_is_not_configured_is_said_with_those_that_are(tmp_path: Path) -> None:
    done = pipeline(repository(tmp_path / "repo"), "pr", "9.1")
    assert done.returncode == 3
    assert "pipeline.toml has no slice 9, only 1, 2: add it there with its recipe" in done.stderr


def test_outside_of_a_repository_git_is_named(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    (root / ".git").rename(tmp_path / "git-is-elsewhere")
    done = pipeline(root, "pr", "1.1")
    assert done.returncode == 3 and "not a git repository" in done.stderr and done.stderr.count("\n") == 1


def test_the_recipes_may_differ_in_order_from_their_numbers(tmp_path: Path) -> None:
    """The order of the stack is that of the table, as slice 7 may come before slice 5."""
    root = repository(tmp_path / "repo")
    text = (root / "pipeline.toml").read_text().replace("number = 1", "number = 7")
    write(root, "pipeline.toml", text)
    write(root, "slices/clock.toml", CLOCK + TESTS)
    commit(root, "7 before 2")
    assert pipeline(root, "pr", "2.1").returncode == 0
    assert git(root, "rev-parse", "migrate/2.1^").strip() == branches(root)["7.3"]
