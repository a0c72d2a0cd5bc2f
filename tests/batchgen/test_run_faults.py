"""What ends a run from outside: kill -9, Ctrl-C, SIGTERM, full disks, a second process. Real processes."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

REAL = [sys.executable, "-m", "batchgen"]
FAKE = [sys.executable, "-m", "tests.batchgen.requests.fake_worker"]
ROOT = Path(__file__).parents[2]


def write_requests(folder: Path, count: int) -> None:
    lines = [
        json.dumps({"custom_id": f"r{i}", "url": "/v1/completions", "body": {"prompt": f"{i} says hello"}})
        for i in range(count)
    ]
    (folder / "in.jsonl").write_text("\n".join(lines) + "\noops\n")


def _without_coverage() -> dict[str, str]:
    """The environment, less what makes a child measure coverage: that writes files of its own, which a full disk or
    a file size limit would fail, too."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


def start(
    folder: Path,
    output: Path | None = None,
    *,
    command: Sequence[str] = FAKE,
    options: Sequence[str] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
    **how: Any,
) -> subprocess.Popen[str]:
    files = ["run", str(folder / "in.jsonl"), "-o", str(output or folder / "out.jsonl"), "--model", "tiny"]
    return subprocess.Popen(
        [*command, *files, *options],
        cwd=ROOT,
        env={**_without_coverage(), "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **how,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=120)
    assert "Traceback" not in err, err
    return process.returncode, err


def wait_for_lines(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"{path} has not {count} lines after a minute"
        time.sleep(0.01)


def check_complete(path: Path, count: int) -> None:
    """One whole line for each of ``count`` requests and for the wrong line after them, and none twice."""
    entries = [json.loads(line) for line in path.read_bytes().splitlines()]
    custom_ids = [entry["custom_id"] for entry in entries]
    assert sorted(custom_ids, key=str) == sorted([None, *(f"r{i}" for i in range(count))], key=str)
    assert sum(entry["error"] is not None for entry in entries) == 1


@pytest.mark.parametrize(
    ("sent", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_stops_a_run_with_one_line_and_whole_results(
    tmp_path: Path, sent: signal.Signals, code: int, word: str
) -> None:
    write_requests(tmp_path, 40)
    output = tmp_path / "out.jsonl"
    process = start(tmp_path, environment={"FAKE_WORKER_DELAY": "0.1"})
    wait_for_lines(output, 5, process)
    process.send_signal(sent)
    returncode, err = finish(process)
    assert returncode == code
    lines = output.read_bytes().splitlines(keepends=True)
    assert 5 <= len(lines) < 41 and lines[-1].endswith(b"\n")
    count = f"{len(lines)} of 41 lines are in {output}; the same command again finishes the rest"
    assert err.splitlines()[1:] == [f"batchgen: {word} ({count})"]


def test_a_killed_run_is_finished_by_the_same_command_which_is_refused_before(tmp_path: Path) -> None:
    write_requests(tmp_path, 40)
    output = tmp_path / "out.jsonl"
    first = start(tmp_path, environment={"FAKE_WORKER_DELAY": "3"})
    wait_for_lines(output, 2, first)
    code, err = finish(start(tmp_path))
    assert code == 75
    assert err.count("\n") == 1 and "is being written by another batchgen run" in err
    first.kill()
    first.communicate()
    before = output.read_bytes()
    output.write_bytes(before + b'{"id":"batch_req_0123')  # as a kill in the middle of a write leaves it
    assert finish(start(tmp_path))[0] == 0
    assert output.read_bytes().startswith(before)
    check_complete(output, 40)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_ends_in_one_line_and_the_run_continues_when_there_is_room(
    tmp_path: Path, small_disk: Path
) -> None:
    write_requests(tmp_path, 120)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(40_000))
    output = small_disk / "out.jsonl"
    code, err = finish(start(tmp_path, output))
    assert code == 74
    last = err.splitlines()[-1]
    assert last.startswith(f"batchgen: cannot write {output}: No space left on device (")
    before = output.read_bytes()
    assert before.endswith(b"\n") and 10 < before.count(b"\n") < 121
    assert f"({before.count(chr(10).encode())} of 121 lines are in" in last
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=512k", str(small_disk)], check=True)
    assert finish(start(tmp_path, output))[0] == 0
    assert output.read_bytes().startswith(before)
    check_complete(output, 120)


def test_a_file_size_limit_is_handled_like_a_full_disk(tmp_path: Path) -> None:
    """The full disk for machines on which nothing can be mounted."""
    write_requests(tmp_path, 120)
    output = tmp_path / "out.jsonl"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    code, err = finish(start(tmp_path, preexec_fn=limit))
    assert code == 74
    assert f"cannot write {output}: File too large" in err.splitlines()[-1]
    before = output.read_bytes()
    assert before.endswith(b"\n") and len(before) <= 20_000
    assert finish(start(tmp_path))[0] == 0
    assert output.read_bytes().startswith(before)
    check_complete(output, 120)


def test_a_full_device_is_an_error_before_anything_is_generated(tmp_path: Path) -> None:
    write_requests(tmp_path, 3)
    code, err = finish(start(tmp_path, Path("/dev/full")))
    assert code == 74
    assert (
        err == "batchgen: cannot write /dev/full: No space left on device (0 of 4 lines are in /dev/full)\n"
    )


ENGINE_OPTIONS = [
    "--device",
    "cpu",
    "--row-exact",
    "--max-batch",
    "2",
    "--page-size",
    "4",
    "--max-tokens",
    "12",
]


def test_a_real_engine_killed_in_mid_run_ends_with_the_lines_of_an_undisturbed_run(tmp_path: Path) -> None:
    write_requests(tmp_path, 16)
    undisturbed = tmp_path / "undisturbed.jsonl"
    assert finish(start(tmp_path, undisturbed, command=REAL, options=ENGINE_OPTIONS))[0] == 0
    output = tmp_path / "out.jsonl"
    process = start(tmp_path, command=REAL, options=ENGINE_OPTIONS)
    wait_for_lines(output, 4, process)
    process.kill()
    process.communicate()
    before = output.read_bytes()
    assert 4 <= before.count(b"\n") < 17
    code, err = finish(start(tmp_path, command=REAL, options=ENGINE_OPTIONS))
    assert code == 0, err
    assert f"generating {17 - before.count(10)} with tiny" in err
    check_complete(output, 16)
    assert sorted(output.read_bytes().splitlines()) == sorted(undisturbed.read_bytes().splitlines())


def test_a_real_engine_that_is_interrupted_stops_with_one_line_and_whole_results(tmp_path: Path) -> None:
    write_requests(tmp_path, 16)
    output = tmp_path / "out.jsonl"
    process = start(tmp_path, command=REAL, options=ENGINE_OPTIONS)
    wait_for_lines(output, 3, process)
    process.send_signal(signal.SIGINT)
    code, err = finish(process)
    assert code == 130
    assert [line.split(" (")[0] for line in err.splitlines()[1:]] == ["batchgen: interrupted"]
    assert output.read_bytes().endswith(b"\n")
    assert 3 <= output.read_bytes().count(b"\n") < 17


def test_a_request_that_no_pool_can_hold_is_an_error_line_and_the_rest_runs(tmp_path: Path) -> None:
    write_requests(tmp_path, 2)
    body = {"prompt": "x" * 100, "max_tokens": 100}
    with (tmp_path / "in.jsonl").open("a") as file:
        file.write(json.dumps({"custom_id": "huge", "url": "/v1/completions", "body": body}) + "\n")
    options = [*ENGINE_OPTIONS, "--gpu-pages", "40", "--host-pages", "80"]
    code, err = finish(start(tmp_path, command=REAL, options=options))
    assert code == 0, err
    entries = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    errors = {entry["custom_id"]: entry["error"] for entry in entries}
    assert (errors["r0"], errors["r1"]) == (None, None)
    assert errors["huge"]["line"] == 4
    assert "needs 50 pages" in errors["huge"]["message"] and "--gpu-pages" in errors["huge"]["message"]


def torchrun(module: str) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*launcher, "-m", module]


def own_lines(err: str) -> list[str]:
    """What batchgen itself says; the launcher adds its own report of a failure."""
    return [line for line in err.splitlines() if line.startswith("batchgen: ")]


@pytest.mark.multirank
@pytest.mark.parametrize("broken", ["0", "1"])
def test_the_failure_of_any_rank_ends_all_of_them_with_one_line(tmp_path: Path, broken: str) -> None:
    write_requests(tmp_path, 4)
    command = torchrun("tests.batchgen.requests.broken_rank")
    process = start(tmp_path, command=command, options=ENGINE_OPTIONS, environment={"BROKEN_RANK": broken})
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    opening, failure = own_lines(err)
    assert opening.endswith("generating 4 with tiny")
    prefix = "" if broken == "0" else "rank 1: "
    assert failure.startswith(f"batchgen: {prefix}the engine failed: RuntimeError: this rank is broken")


@pytest.mark.multirank
def test_ctrl_c_stops_all_ranks_with_one_line(tmp_path: Path) -> None:
    write_requests(tmp_path, 60)
    output = tmp_path / "out.jsonl"
    command = torchrun("batchgen")
    process = start(tmp_path, command=command, options=ENGINE_OPTIONS, start_new_session=True)
    wait_for_lines(output, 3, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the launcher and every rank
    _, err = process.communicate(timeout=25)  # after 30 s the launcher would kill
    assert [line.split(" (")[0] for line in own_lines(err)[1:]] == ["batchgen: interrupted"]
    assert output.read_bytes().endswith(b"\n")
    assert 3 <= output.read_bytes().count(b"\n") < 61


@pytest.mark.multirank
def test_a_rank_that_is_killed_ends_the_others_with_whole_lines(tmp_path: Path) -> None:
    write_requests(tmp_path, 60)
    output = tmp_path / "out.jsonl"
    process = start(tmp_path, command=torchrun("batchgen"), options=ENGINE_OPTIONS)
    wait_for_lines(output, 3, process)
    os.kill(pid_of_rank(process.pid, 1), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    (failure,) = own_lines(err)[1:]
    # Either the broken connection or the launcher's signal is first to reach rank 0.
    assert failure.startswith(("batchgen: the connection to another rank broke", "batchgen: terminated ("))
    assert output.read_bytes().endswith(b"\n")


def pid_of_rank(launcher: int, rank: int) -> int:
    for children in Path(f"/proc/{launcher}/task").glob("*/children"):
        for child in children.read_text().split():
            if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                return int(child)
    raise AssertionError(f"the launcher {launcher} has no rank {rank}")


@pytest.mark.multirank
def test_two_ranks_stop_at_a_full_disk_and_one_finishes(tmp_path: Path) -> None:
    write_requests(tmp_path, 16)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))

    output = tmp_path / "out.jsonl"
    process = start(
        tmp_path,
        command=torchrun("batchgen"),
        options=ENGINE_OPTIONS,
        environment={"NUM_GPUS_PER_NODE": "1"},  # no shared host pool: its segment is a file with a size, too
        preexec_fn=limit,
    )
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    failure = own_lines(err)[1:]
    assert len(failure) == 1 and failure[0].startswith(
        f"batchgen: cannot write {output}: File too large ("
    ), err
    before = output.read_bytes()
    assert before.endswith(b"\n") and before.count(b"\n") < 17
    assert finish(start(tmp_path, command=REAL, options=ENGINE_OPTIONS))[0] == 0
    assert output.read_bytes().startswith(before)
    check_complete(output, 16)
