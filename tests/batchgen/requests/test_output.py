"""The results file: whole lines, one writer, resumed only where it belongs."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchgen.requests import Finished, OutputBusyError, OutputConflictError, OutputError, ResultFile
from batchgen.requests import output as output_module

OPTIONS = "0a0a0a0a"


def line_id(name: str, options: str = OPTIONS) -> str:
    return f"batch_req_{options}{name:x>24}"


def line(name: str, options: str = OPTIONS, code: str | None = None) -> bytes:
    error = None if code is None else {"code": code, "message": "m", "line": 1}
    entry = {"id": line_id(name, options), "custom_id": name, "response": None, "error": error}
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


EXPECTED: dict[str, str | None] = {line_id(name): name for name in "abc"}


def resume(file: ResultFile, *, force: bool = False) -> Finished:
    return file.resume(EXPECTED, fingerprint=OPTIONS, requests_name="in.jsonl", force=force)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "deep" / "er" / "out.jsonl"


def test_a_new_file_is_made_with_its_folders_and_holds_what_is_appended(path: Path) -> None:
    with ResultFile(path) as file:
        assert resume(file) == Finished()
        file.append(line("a"))
        assert path.read_bytes() == line("a"), "a line must be in the file as soon as append returns"
        file.append(line("b"))
    assert path.read_bytes() == line("a") + line("b")


@settings(deadline=None, max_examples=40)
@given(st.integers(1, len(line("b")) - 1))
def test_a_line_torn_anywhere_is_cut_and_the_whole_ones_are_done(cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out.jsonl"
        path.write_bytes(line("a") + line("b")[:cut])
        with ResultFile(path) as file:
            assert resume(file).ids == {line_id("a")}
            file.append(line("c"))
        assert path.read_bytes() == line("a") + line("c")


def test_error_lines_are_counted_and_done(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(line("a", code="invalid_body") + line("b"))
    with ResultFile(path) as file:
        finished = resume(file)
    assert (finished.ids, finished.num_errors) == ({line_id("a"), line_id("b")}, 1)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (line("z"), "custom_id 'z' belongs to no line of in.jsonl"),
        (line("b", options="ffffffff"), "custom_id 'b' was made with other options"),
        (
            line("b").replace(b"xxx", b"yyy"),
            "custom_id 'b' was made from another request than the one in in.jsonl",
        ),
        (b"[1, 2]\n", "out.jsonl:2: not a result line"),
        (b"some text without an end", "out.jsonl:2: not a result line"),
        (b"\n", "out.jsonl:2: not a result line"),
        (b"\0\0\0\n", "out.jsonl:2: not a result line"),
    ],
)
def test_a_file_of_something_else_is_refused_and_left_as_it_is(path: Path, found: bytes, words: str) -> None:
    path.parent.mkdir(parents=True)
    before = line("a") + found + (line("c")[:40] if found.endswith(b"\n") else b"")
    path.write_bytes(before)
    with ResultFile(path) as file, pytest.raises(OutputConflictError) as caught:
        resume(file)
    assert words in str(caught.value)
    assert "--restart" in str(caught.value)
    assert path.read_bytes() == before


def test_force_keeps_foreign_lines_and_takes_their_requests_as_done(path: Path) -> None:
    path.parent.mkdir(parents=True)
    before = (
        line("b", options="ffffffff") + line("z") + line("c", options="ffffffff", code="duplicate_custom_id")
    )
    path.write_bytes(before)
    with ResultFile(path) as file:
        finished = resume(file, force=True)
        file.append(line("a"))
    assert finished.custom_ids == {"b", "z"}, "an error line of a repeated custom_id is no result of it"
    assert path.read_bytes() == before + line("a")


def test_restart_drops_everything_even_what_is_no_result(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"anything\nat all")
    with ResultFile(path) as file:
        file.restart()
        file.append(line("a"))
    assert path.read_bytes() == line("a")


def test_a_second_writer_is_refused_until_the_first_is_gone(path: Path) -> None:
    with ResultFile(path), pytest.raises(OutputBusyError, match="being written by another batchgen run"):
        ResultFile(path)
    ResultFile(path).close()


def test_a_path_that_cannot_be_written_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="Is a directory"):
        ResultFile(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"Not a directory|File exists"):
        ResultFile(tmp_path / "file" / "out.jsonl")


def test_a_device_is_written_without_resuming() -> None:
    with ResultFile("/dev/null") as file:
        assert not file.resumable
        assert resume(file) == Finished()
        file.append(line("a"))
    with ResultFile("/dev/full") as file, pytest.raises(OutputError, match="No space left on device"):
        file.append(line("a"))


class HalfWrite:
    """``os.write`` that takes a part of the first write and then fails."""

    def __init__(self, failure: BaseException) -> None:
        self.failure = failure
        self.calls = 0
        self.write = os.write

    def __call__(self, fd: int, data: memoryview) -> int:
        self.calls += 1
        if self.calls == 1:
            return self.write(fd, data[:10])
        if self.calls == 2:
            raise self.failure
        return self.write(fd, data)


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_a_write_that_fails_half_way_leaves_whole_lines(
    path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    with ResultFile(path) as file:
        file.append(line("a"))
        with monkeypatch.context() as patch:
            patch.setattr(output_module.os, "write", HalfWrite(failure))
            with pytest.raises(OutputError if isinstance(failure, OSError) else KeyboardInterrupt):
                file.append(line("b"))
        assert path.read_bytes() == line("a")
        file.append(line("c"))
    assert path.read_bytes() == line("a") + line("c")


def test_a_write_taken_in_parts_is_continued(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    with ResultFile(path) as file, monkeypatch.context() as patch:
        patch.setattr(output_module.os, "write", lambda fd, data: write(fd, data[:7]))
        file.append(line("a"))
    assert path.read_bytes() == line("a")


def test_lines_reach_the_disk_within_the_sync_time_and_at_the_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(output_module.os, "fsync", synced.append)
    now = [100.0]
    monkeypatch.setattr(output_module.time, "monotonic", lambda: now[0])
    with ResultFile(path) as file:
        file.append(line("a"))
        assert not synced
        now[0] += output_module.SYNC_SECONDS + 1
        file.append(line("b"))
        assert len(synced) == 1
    assert len(synced) == 2
