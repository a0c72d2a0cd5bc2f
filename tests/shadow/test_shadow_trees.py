"""What `--legacy` and `--candidate` may name: a folder, a worker file, a git revision."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shadow.cli import main
from shadow.trees import WORKER, TreeError, source_tree

FAKE = Path(__file__).parent / "fake_tree"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with two revisions of a worker: `first`, and HEAD."""
    (tmp_path / "batchgen").mkdir()
    (tmp_path / "batchgen" / "__init__.py").touch()
    for name in ("first", "second"):
        (tmp_path / WORKER).write_text(f"NAME = {name!r}\n")
        for command in (("init", "-q"), ("add", "."), ("commit", "-qm", name), ("tag", name)):
            identity = ("-c", "user.name=a", "-c", "user.email=a@b")
            subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True)
    return tmp_path


def worker_of(named: str, beside: Path) -> str:
    with source_tree(named, beside) as tree:
        return (tree / WORKER).read_text()


def test_a_folder_is_used_where_it_is(repository: Path) -> None:
    with source_tree(str(repository)) as tree:
        assert tree == repository


def test_a_revision_is_the_tree_that_it_names_and_leaves_nothing_behind(repository: Path) -> None:
    assert "first" in worker_of("first", repository)
    assert "second" in worker_of("HEAD", repository)
    with source_tree("first", repository) as tree:
        pass
    assert not tree.exists()


def test_a_worker_file_stands_in_a_copy_of_the_tree(repository: Path, tmp_path: Path) -> None:
    file = tmp_path / "other_worker.py"
    file.write_text("NAME = 'third'\n")
    assert "third" in worker_of(str(file), repository)
    assert "second" in (repository / WORKER).read_text()


@pytest.mark.parametrize(
    ("named", "said"),
    [("nowhere", "no folder, Python file or git revision"), ("--output=x", "no folder, Python file")],
)
def test_what_names_no_tree_is_refused_in_one_line(repository: Path, named: str, said: str) -> None:
    with pytest.raises(TreeError, match=said) as refused, source_tree(named, repository):
        pass
    assert "\n" not in str(refused.value)


def test_the_command_says_it_with_the_usage_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = tmp_path / "r.jsonl"
    requests.touch()
    arguments = ["compare", "--legacy", str(tmp_path), "--candidate", str(FAKE), "--requests", str(requests)]
    assert main(arguments) == 64
    assert "holds no batchgen/__init__.py" in capsys.readouterr().err
