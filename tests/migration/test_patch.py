"""`--diff` prints what `git apply` takes, whatever is in the files and their names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migration.ledger.patch import patch

from .disk_faults import changes_between, make_tree

NAMES = [
    "a.py",
    "pkg/b.py",
    "with space/c d.py",
    "é/日本.py",
    'quo"te\\.py',
    "tab\there.py",
    "-x.py",
    "b/a/b.py",
]
# Line ends that only some programs take for one, a tab, a byte that is no UTF-8, and what looks like a patch.
PIECES = [
    b"x\n", b"y\n", b"\n", b"\r\n", b"\r", b"\x0c", b"\x1c", b"\xe9", b"\xe2\x80\xa8", b"--- a\n", b"\ttab\n", b"x"
]  # fmt: skip
CONTENT = st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)
TREES = st.dictionaries(st.sampled_from(NAMES), CONTENT, max_size=4)


def apply(root: Path, data: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    command = ["git", "apply", "--whitespace=nowarn", *options]
    return subprocess.run(command, cwd=root, input=data, capture_output=True, check=False)


def files(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


@given(TREES, TREES)
@settings(derandomize=True, max_examples=60, deadline=None)
def test_git_applies_any_patch_and_takes_it_back(
    tmp_path_factory: pytest.TempPathFactory, old: dict[str, bytes], new: dict[str, bytes]
):
    root = tmp_path_factory.mktemp("tree")
    make_tree(root, old)
    data = patch(changes_between(old, new))
    if not data:
        assert old == new
        return
    run = apply(root, data)
    assert run.returncode == 0 and run.stderr == b"", run.stderr
    assert files(root) == new
    assert apply(root, data, "-R").returncode == 0
    assert files(root) == old


def test_a_deletion_has_the_mode_that_git_compares(tmp_path: Path):
    make_tree(tmp_path, {"tool.py": b"x\n"})
    (tmp_path / "tool.py").chmod(0o755)
    data = patch(changes_between({"tool.py": b"x\n"}, {}), executable={"tool.py"})
    assert b"\ndeleted file mode 100755\n" in data
    run = apply(tmp_path, data)
    assert (run.returncode, run.stderr, files(tmp_path)) == (0, b"", {})


def test_a_name_with_a_space_ends_in_a_tab_as_git_writes_it(tmp_path: Path):
    make_tree(tmp_path, {"a b.py": b"x\n"})
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    (tmp_path / "a b.py").write_bytes(b"y\n")
    git = subprocess.run(["git", "diff"], cwd=tmp_path, capture_output=True, check=True).stdout
    ours = patch(changes_between({"a b.py": b"x\n"}, {"a b.py": b"y\n"}))
    assert ours.splitlines() == [line for line in git.splitlines() if not line.startswith(b"index ")]
