"""Several files are written as one: whatever stops the write, the old or the new tree is found afterwards."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from migration.errors import MigrationError
from migration.ledger import journal, records, staging
from migration.ledger.change import FileChange
from migration.ledger.interrupts import Interrupted, held_back

from .disk_faults import (
    CHANGES,
    NEW,
    OLD,
    Killed,
    killed_at,
    labels,
    make_tree,
    refused_at,
    signalled_at,
    tree,
    unsynced,
    with_folders,
)

OLD_TREE, NEW_TREE = with_folders(OLD), with_folders(NEW)


@pytest.fixture(scope="module", autouse=True)
def keep_two_records() -> Iterator[None]:
    """So that a third write drops the oldest record: that, too, must not be half done."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "KEPT", 2)
        yield


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return written_before(tmp_path / "root")


def written_before(root: Path) -> Path:
    """The old tree, with the records of two earlier writes."""
    root.mkdir()
    with unsynced():
        journal.write_all(root, [FileChange("early.py", None, b"1\n")], label="first")
        journal.write_all(root, [FileChange("early.py", b"1\n", None)], label="second")
    make_tree(root)
    return root


def state(root: Path) -> str:
    """The old tree with its records, or the new one with its; anything else fails."""
    found = tree(root), labels(root)
    if found == (OLD_TREE, ["second", "first"]):
        return "old"
    assert found == (NEW_TREE, ["port", "second"])
    return "new"


def write(root: Path) -> None:
    journal.write_all(root, CHANGES, label="port")


def instants(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A fresh tree for each disk call of a write, until the test stops asking."""
    for instant in range(1000):
        yield instant, written_before(tmp_path / str(instant))
    raise AssertionError("the write never ends")


def test_every_file_is_written_and_only_the_undo_record_is_left_over(root: Path):
    assert journal.write_all(root, CHANGES, label="port") == "0003"
    assert state(root) == "new"
    assert sorted(entry.name for entry in (root / records.UNDO).iterdir()) == [".gitignore", "0002", "0003"]


def test_a_kill_at_any_call_leaves_the_old_or_the_new_tree_with_its_record(tmp_path: Path):
    seen = []
    for instant, root in instants(tmp_path):
        try:
            with killed_at(instant):
                write(root)
            break
        except Killed:
            pass
        journal.recover(root)
        assert not journal.pending(root)
        seen.append(state(root))
        assert journal.recover(root) is None, "recovery is finished after one run"
    assert seen.count("old") > 20 and seen.count("new") > 15, seen
    assert seen == sorted(seen, reverse=True), "once the write counts it is never given up"


def raise_killed(*_: object, **__: object) -> None:
    raise Killed


def killed_late(root: Path, instant: int) -> None:
    with killed_at(instant), pytest.raises(Killed):
        write(root)


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> int:
    """The first disk call at which a kill no longer leaves the old tree."""
    for instant, root in instants(tmp_path_factory.mktemp("probe")):
        killed_late(root, instant)
        journal.recover(root)
        if state(root) == "new":
            return instant
    raise AssertionError


def test_a_kill_during_recovery_is_recovered_from(tmp_path: Path, committed: int):
    tried = 0
    for first in (committed - 1, committed, committed + 4, committed + 10):
        for instant in range(1000):
            root = written_before(tmp_path / f"{first}-{instant}")
            killed_late(root, first)
            try:
                with killed_at(instant):
                    journal.recover(root)
                break
            except Killed:
                tried += 1
            journal.recover(root)
            assert state(root) == ("old" if first < committed else "new")
    assert tried > 40


def test_a_system_that_refuses_any_call_once_leaves_the_old_tree_and_no_trace(tmp_path: Path):
    refused = 0
    for instant, root in instants(tmp_path):
        try:
            with refused_at(instant):
                write(root)
        except OSError:
            refused += 1
            assert state(root) == "old" and not journal.pending(root), instant
            with unsynced():
                write(root)  # and it works when there is room again
        if (root / "gone").exists():  # refused to go: it does no harm
            (root / "gone").rmdir()
        assert state(root) == "new"
        if refused and refused + 10 < instant:  # only the tidying up is left, which may fail unseen
            break
    assert refused > 40


def test_a_system_that_refuses_everything_from_some_call_on_is_recovered_from(tmp_path: Path):
    codes = set()
    for instant, root in instants(tmp_path):
        try:
            with refused_at(instant, times=10_000):
                write(root)
            if state(root) == "new" and not journal.pending(root):
                break
        except MigrationError as error:
            codes.add(error.code)
        except OSError:
            codes.add("OSError")
        journal.recover(root)
        state(root)
    assert codes == {"MG309", "OSError"}


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """Whoever starts the tests in the background may have them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_at_any_call_leaves_a_whole_tree_and_says_which(tmp_path: Path):
    seen = set()
    for instant, root in instants(tmp_path):
        try:
            with signalled_at(instant):
                write(root)
            break
        except Interrupted as interrupt:
            assert interrupt.number == signal.SIGINT and not journal.pending(root)
            message = str(interrupt)
        found = state(root)
        assert ("nothing was written" in message, "`migrate undo`" in message) == (
            found == "old",
            found == "new",
        )
        seen.add(found)
    assert seen == {"old", "new"}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_a_signal_that_nobody_asked_about_is_not_lost():
    with pytest.raises(KeyboardInterrupt) as interrupt, held_back():
        signal.raise_signal(signal.SIGINT)
        raise MigrationError("MG306", "a.py")
    assert isinstance(interrupt.value.__context__, MigrationError)


def test_an_ignored_signal_stays_ignored(root: Path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signalled_at(5, signal.SIGHUP):
            write(root)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert state(root) == "new"


def test_a_file_that_changed_after_planning_stops_everything(root: Path):
    (root / "pkg/b.py").write_bytes(b"edited\n")
    with pytest.raises(MigrationError) as error:
        write(root)
    assert error.value.code == "MG306" and "pkg/b.py" in str(error.value)
    assert tree(root) == {**OLD_TREE, "pkg/b.py": b"edited\n"} and labels(root) == ["second", "first"]


def test_a_file_in_the_way_of_a_new_one_stops_everything(root: Path):
    (root / "pkg/deep/er").mkdir(parents=True)
    (root / "pkg/deep/er/c.py").write_bytes(b"mine\n")
    with pytest.raises(MigrationError) as error:
        write(root)
    assert error.value.code == "MG306" and (root / "a.py").read_bytes() == OLD["a.py"]


def test_a_folder_in_the_way_of_a_new_file_stops_everything(root: Path):
    (root / "pkg/deep/er/c.py").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        write(root)
    assert not journal.pending(root) and (root / "a.py").read_bytes() == OLD["a.py"]


def test_recovery_does_not_overwrite_an_edit_made_since(root: Path, committed: int):
    killed_late(root, committed + 1)
    (root / "a.py").write_bytes(b"edited\n")
    with pytest.raises(MigrationError) as error:
        journal.recover(root)
    assert error.value.code == "MG305" and "a.py" in str(error.value)
    assert (root / "a.py").read_bytes() == b"edited\n"
    kept = Path(str(error.value).rpartition(" ")[2])
    assert kept.read_bytes() == OLD["a.py"], "the message says where the old bytes are"
    (root / "a.py").write_bytes(kept.read_bytes())
    assert journal.recover(root) == "port" and state(root) == "new"


def test_when_the_waiting_files_were_cleaned_away_recovery_goes_back(root: Path, committed: int):
    killed_late(root, committed + 3)
    waiting = list(root.rglob("*.migrate-tmp"))
    assert waiting and (root / "a.py").read_bytes() == NEW["a.py"], "some are in place, some are not"
    for path in waiting:
        path.unlink()
    with pytest.raises(FileNotFoundError):
        journal.recover(root)
    assert state(root) == "old" and not journal.pending(root)


def test_when_a_waiting_file_was_edited_recovery_goes_back(root: Path, committed: int):
    killed_late(root, committed + 3)
    waiting = root / "pkg/deep/er/.c.py.migrate-tmp"
    waiting.write_bytes(b"not what was planned\n")
    with pytest.raises(FileNotFoundError):
        journal.recover(root)
    assert state(root) == "old"


def test_after_a_kill_while_tidying_up_later_edits_are_not_in_the_way(root: Path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging.shutil, "rmtree", raise_killed)
        with pytest.raises(Killed):
            write(root)
    assert journal.pending(root)
    (root / "a.py").write_bytes(b"edited\n")
    journal.recover(root)
    assert tree(root) == {**NEW_TREE, "a.py": b"edited\n"}


def test_a_full_disk_is_reported_with_the_file(root: Path, monkeypatch: pytest.MonkeyPatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space") as error:
            write(root)
    assert str(error.value.filename).startswith(str(root)) and state(root) == "old"


def test_a_read_only_folder_is_found_before_anything_is_written():
    """As a user whom the system refuses: root is refused nothing."""
    root = written_before(Path(tempfile.mkdtemp()) / "root")
    root.parent.chmod(0o755)
    for path in (root, *root.rglob("*")):
        path.chmod(0o777)
    (root / "pkg").chmod(0o555)
    child = os.fork()
    if child == 0:
        if os.geteuid() == 0:
            os.setuid(65534)
        try:
            write(root)
        except PermissionError as error:
            os._exit(7 if str(error.filename).startswith(str(root / "pkg")) else 8)
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    (root / "pkg").chmod(0o755)
    assert state(root) == "old" and not journal.pending(root)


def test_two_writers_do_not_meet(root: Path):
    with journal._locked(root), pytest.raises(MigrationError) as error:
        write(root)
    assert error.value.code == "MG307" and state(root) == "old"


def test_file_mode_and_links_are_kept(root: Path):
    (root / "a.py").rename(root / "real.py")
    (root / "real.py").chmod(0o750)
    (root / "a.py").symlink_to("real.py")
    write(root)
    assert (root / "a.py").is_symlink()
    assert (root / "real.py").read_bytes() == NEW["a.py"]
    assert (root / "real.py").stat().st_mode & 0o777 == 0o750


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_keeps_its_owner_when_root_writes(root: Path):
    os.chown(root / "a.py", 1234, 4321)
    write(root)
    found = (root / "a.py").stat()
    assert (found.st_uid, found.st_gid) == (1234, 4321)


def test_a_write_that_changes_nothing_leaves_nothing(tmp_path: Path):
    make_tree(tmp_path)
    same = [FileChange(path, data, data) for path, data in OLD.items()]
    assert journal.write_all(tmp_path, same, label="nothing") is None
    assert tree(tmp_path) == OLD_TREE and not (tmp_path / ".migrate").exists()


def test_a_refused_first_write_leaves_no_folder_of_ours(tmp_path: Path):
    make_tree(tmp_path)
    with refused_at(12), pytest.raises(OSError, match="No space"):
        write(tmp_path)
    assert tree(tmp_path) == OLD_TREE and not (tmp_path / ".migrate").exists()


def test_a_folder_that_a_deletion_empties_goes_but_others_stay(root: Path):
    (root / "pkg/keep").mkdir()
    journal.write_all(
        root, [FileChange(path, OLD[path], None) for path in ("gone/d.py", "pkg/b.py")], label="cleanup"
    )
    assert tree(root) == {"a.py": OLD["a.py"], "pkg": None, "pkg/keep": None}


def test_two_names_of_one_file_are_refused(root: Path):
    (root / "same.py").symlink_to("a.py")
    both = [FileChange(path, OLD["a.py"], b"x\n") for path in ("a.py", "same.py")]
    with pytest.raises(MigrationError) as error:
        journal.write_all(root, both, label="port")
    assert error.value.code == "MG312" and "same.py" in str(error.value)
    assert (root / "a.py").read_bytes() == OLD["a.py"]


def test_nothing_outside_the_repository_is_written(root: Path):
    (root.parent / "outside.py").write_bytes(b"x\n")
    (root / "link.py").symlink_to("../outside.py")
    for path in ("link.py", "../outside.py"):
        with pytest.raises(MigrationError) as error:
            journal.write_all(root, [FileChange(path, b"x\n", b"y\n")], label="port")
        assert error.value.code == "MG313"
    assert (root.parent / "outside.py").read_bytes() == b"x\n"


@pytest.mark.parametrize("damage", ["[]", "{", '{"label": 1}', "outside"])
def test_a_journal_that_is_not_ours_is_not_obeyed(root: Path, committed: int, damage: str):
    killed_late(root, committed)
    manifest = root / journal.JOURNAL / "manifest.json"
    if damage == "outside":
        content = json.loads(manifest.read_bytes())
        content["files"][0]["path"] = "../a.py"
        damage = json.dumps(content)
    manifest.write_text(damage)
    with pytest.raises(MigrationError) as error:
        journal.recover(root)
    assert error.value.code in ("MG305", "MG313")
    assert (root / "a.py").read_bytes() == OLD["a.py"] and not (root.parent / "a.py").exists()
