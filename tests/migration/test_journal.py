"""Several files are written as one: recovery from a kill at any instant finds the old or the new tree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from migration.errors import MigrationError
from migration.ledger import journal
from migration.ledger.change import FileChange

OLD = {"a.py": b"old a\n", "pkg/b.py": b"old b\n"}
NEW = {"a.py": b"new a\n" * 1000, "pkg/b.py": b"new b\n" * 1000, "pkg/deep/c.py": b"new c\n"}


def make_tree(root: Path) -> list[FileChange]:
    for path, data in OLD.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return [FileChange(path, OLD.get(path), data) for path, data in NEW.items()]


def read_tree(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


class Killed(BaseException):
    """Not an Exception: no handler may tidy up, as none would run after SIGKILL."""


def kill_at(monkeypatch: pytest.MonkeyPatch, instant: int) -> None:
    """Make the `instant`-th call that touches the disk the last one."""
    left = [instant]

    def stopping(call):
        def wrapped(*args, **kwargs):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return call(*args, **kwargs)

        return wrapped

    for owner, name in ((os, "fsync"), (os, "replace"), (Path, "mkdir"), (Path, "unlink")):
        monkeypatch.setattr(owner, name, stopping(getattr(owner, name)))
    monkeypatch.setattr(journal.shutil, "rmtree", stopping(journal.shutil.rmtree))


def test_every_file_is_written_and_nothing_is_left_over(tmp_path: Path):
    journal.write_all(tmp_path, make_tree(tmp_path))
    assert read_tree(tmp_path) == NEW
    assert not journal.pending(tmp_path)


def test_a_kill_at_any_call_leaves_the_old_or_the_new_tree(tmp_path: Path):
    seen = set()
    for instant in range(1000):
        root = tmp_path / str(instant)
        root.mkdir()
        changes = make_tree(root)
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, instant)
            try:
                journal.write_all(root, changes)
                break
            except Killed:
                pass
        journal.recover(root)
        tree = read_tree(root)
        assert tree in (OLD, NEW), instant
        seen.add("new" if tree == NEW else "old")
        assert journal.recover(root) is False, "recovery is finished after one run"
    assert instant > 15 and seen == {"old", "new"}


def test_a_kill_during_recovery_is_recovered_from(tmp_path: Path):
    for instant in range(1000):
        root = tmp_path / str(instant)
        root.mkdir()
        changes = make_tree(root)
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, 12)
            with pytest.raises(Killed):
                journal.write_all(root, changes)
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, instant)
            try:
                journal.recover(root)
                break
            except Killed:
                pass
        journal.recover(root)
        assert read_tree(root) == NEW
    assert instant > 5


WRITER = """
import sys
from pathlib import Path
from tests.migration.test_journal import make_tree
from migration.ledger import journal
changes = make_tree(Path(sys.argv[1]))
print("ready", flush=True)
journal.write_all(Path(sys.argv[1]), changes)
"""


@pytest.mark.parametrize("delay", [0.0, 0.0005, 0.001, 0.002, 0.004, 0.008])
def test_sigkill_leaves_the_old_or_the_new_tree(tmp_path: Path, delay: float):
    repository = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, cwd=repository
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    journal.recover(tmp_path)
    assert read_tree(tmp_path) in (OLD, NEW)


def test_a_file_that_changed_after_planning_stops_everything(tmp_path: Path):
    changes = make_tree(tmp_path)
    (tmp_path / "pkg/b.py").write_bytes(b"edited\n")
    with pytest.raises(MigrationError) as error:
        journal.write_all(tmp_path, changes)
    assert error.value.code == "MG306" and "pkg/b.py" in str(error.value)
    assert read_tree(tmp_path) == {**OLD, "pkg/b.py": b"edited\n"}


def test_recovery_does_not_overwrite_an_edit_made_since(tmp_path: Path):
    changes = make_tree(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, 12)
        with pytest.raises(Killed):
            journal.write_all(tmp_path, changes)
    (tmp_path / "a.py").write_bytes(b"edited\n")
    with pytest.raises(MigrationError) as error:
        journal.recover(tmp_path)
    assert error.value.code == "MG305" and "a.py" in str(error.value)
    assert (tmp_path / "a.py").read_bytes() == b"edited\n"


def test_after_a_kill_while_tidying_up_later_edits_are_not_in_the_way(tmp_path: Path):
    changes = make_tree(tmp_path)

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal.shutil, "rmtree", killed)
        with pytest.raises(Killed):
            journal.write_all(tmp_path, changes)
    (tmp_path / "a.py").write_bytes(b"edited\n")
    journal.recover(tmp_path)
    assert read_tree(tmp_path) == {**NEW, "a.py": b"edited\n"}


def test_a_full_disk_while_staging_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    changes = make_tree(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        journal.write_all(tmp_path, changes)
    assert read_tree(tmp_path) == OLD and not journal.pending(tmp_path)


def test_two_writers_do_not_meet(tmp_path: Path):
    changes = make_tree(tmp_path)
    with journal._locked(tmp_path), pytest.raises(MigrationError) as error:
        journal.write_all(tmp_path, changes)
    assert error.value.code == "MG307" and read_tree(tmp_path) == OLD


def test_file_mode_and_links_are_kept(tmp_path: Path):
    changes = make_tree(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "real.py")
    (tmp_path / "real.py").chmod(0o750)
    (tmp_path / "a.py").symlink_to("real.py")
    journal.write_all(tmp_path, changes)
    assert (tmp_path / "a.py").is_symlink()
    assert (tmp_path / "real.py").read_bytes() == NEW["a.py"]
    assert (tmp_path / "real.py").stat().st_mode & 0o777 == 0o750
