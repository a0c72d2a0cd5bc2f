"""The spill store: budget, names, leftovers of dead processes, threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from batchgen.scheduler.errors import SpillError
from batchgen.scheduler.file_spill import FileSpill, SpillUsage

MIB = 1 << 20


def entries(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*/*"))


def stored(store: FileSpill, data: bytes) -> int:
    swap_id, writer = store.create()
    with writer:
        writer.write(data)
    store.record_usage(swap_id)
    return swap_id


def test_an_entry_is_read_back_and_gone_once_it_is_removed(tmp_path: Path) -> None:
    with FileSpill(tmp_path, 100) as store:
        swap_id = stored(store, b"x" * 60)
        with store.open(swap_id) as reader:
            assert reader.read() == b"x" * 60
        assert store.usage() == SpillUsage(1, 60, 60, 100)
        store.remove(swap_id)
        assert entries(tmp_path) == [] and store.usage() == SpillUsage(0, 0, 60, 100)
        with pytest.raises(SpillError, match="cannot open spill entry 0: No such file"):
            store.open(swap_id)
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_closed_holds_nothing(tmp_path: Path) -> None:
    store = FileSpill(tmp_path, 100)
    stored(store, b"abc")
    store.close()
    store.close()
    assert list(tmp_path.iterdir()) == [] and store.usage() == SpillUsage(0, 0, 3, 100)


def test_a_folder_that_is_gone_makes_no_entry(tmp_path: Path) -> None:
    with FileSpill(tmp_path, 100) as store:
        [folder] = tmp_path.iterdir()
        folder.rmdir()
        with pytest.raises(SpillError, match=r"cannot create .*0\.partial: No such file or directory"):
            store.create()
        assert store.usage().entries == 0


def test_only_its_user_may_look_into_the_store(tmp_path: Path) -> None:
    with FileSpill(tmp_path, 100):
        [folder] = tmp_path.iterdir()
        assert folder.stat().st_mode & 0o077 == 0


def test_an_entry_under_way_has_a_temporary_name_and_cannot_be_opened(tmp_path: Path) -> None:
    with FileSpill(tmp_path, 100) as store:
        swap_id, writer = store.create()
        assert entries(tmp_path) == ["0.partial"]
        with pytest.raises(SpillError, match="cannot open"):
            store.open(swap_id)
        writer.close()
        store.record_usage(swap_id)
        assert entries(tmp_path) == ["0.kv"]


def test_no_entry_grows_beyond_the_budget(tmp_path: Path) -> None:
    with FileSpill(tmp_path, 2 * MIB) as store:
        first = stored(store, bytes(MIB))
        swap_id, writer = store.create()
        with pytest.raises(SpillError, match=r"do not fit the spill budget: \d+ of 2097152 used"):
            for _ in range(3):
                writer.write(bytes(MIB))
        with pytest.raises(SpillError):
            writer.close()
        assert writer.closed
        store.remove(swap_id)
        assert store.usage().bytes == MIB and entries(tmp_path) == ["0.kv"]
        stored(store, bytes(MIB))
        with pytest.raises(SpillError, match="the spill budget of 2097152 bytes is used up"):
            store.create()
        store.remove(first)
        store.create()[1].close()


def test_an_entry_that_cannot_be_removed_still_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileSpill(tmp_path, 100) as store:
        swap_id = stored(store, b"abc")

        def refuse(path: Path, missing_ok: bool = False) -> None:
            raise PermissionError(13, "Permission denied")

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", refuse)
            with pytest.raises(SpillError, match="cannot remove spill entry 0: Permission denied"):
                store.remove(swap_id)
        assert store.usage().bytes == 3


HOLD = """
import os, sys
from pathlib import Path
from batchgen.scheduler.file_spill import FileSpill
store = FileSpill(Path(sys.argv[1]), 1000)
whole, writer = store.create()
writer.write(b"kept")
writer.close()
store.record_usage(whole)
half, writer = store.create()
writer.write(b"half")
writer.flush()
print("ready", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_left_is_swept_and_what_a_live_one_holds_is_not(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not ours")
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with other:
        assert other.stdout is not None and other.stdout.readline() == b"ready\n"
        with FileSpill(tmp_path, 10) as store:
            mine = stored(store, b"abc")
            assert entries(tmp_path) == ["0.kv", "0.kv", "1.partial"]
            other.send_signal(signal.SIGKILL)
            other.wait()
            with FileSpill(tmp_path, 10):
                assert entries(tmp_path) == ["0.kv"]
            with store.open(mine) as reader:
                assert reader.read() == b"abc"
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_threads_share_one_ledger(tmp_path: Path) -> None:
    wrong: list[str] = []

    def work(store: FileSpill, mark: int) -> None:
        for round_ in range(20):
            data = bytes([mark]) * (100 + round_)
            swap_id = stored(store, data)
            with store.open(swap_id) as reader:
                if reader.read() != data:
                    wrong.append(f"entry {swap_id} of thread {mark}")
            store.remove(swap_id)

    with FileSpill(tmp_path, 1 << 20) as store:
        threads = [threading.Thread(target=work, args=(store, mark)) for mark in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong and store.usage().entries == store.usage().bytes == 0
        assert 119 <= store.usage().peak_bytes <= 8 * 119


@pytest.mark.parametrize("budget", [0, -1])
def test_a_budget_must_hold_something(tmp_path: Path, budget: int) -> None:
    with pytest.raises(SpillError, match="holds nothing; give a positive number"):
        FileSpill(tmp_path, budget)


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpillError, match=r"cannot use .*file for spilled sequences: .*; give another folder"):
        FileSpill(tmp_path / "file", 10)
