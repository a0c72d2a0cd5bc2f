"""Folders of records: spread, summed, and done to the end whatever becomes of single records and workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reports import Report, Status
from tests.shadow.record.test_record_replay import STEPS, boundary, recorded, reported, step, tree

ROOT = Path(__file__).resolve().parents[3]

BOUNDARY = boundary(10, ("b",), ("b",))
GONE = 'tuple(n for n, row in snapshot.arguments["state"].items() if row["completed"])'
DECISION = f'{{"gone": {GONE}, "page_count": 3 * len({GONE})}}'


def planners(folder: Path, body: str) -> Path:
    """A boundary planner that does `body`, where `poisoned` says whether it is asked of the poisoned record."""
    file = folder / "mine.py"
    file.write_text(
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        f"here = Path({str(folder)!r})\n"
        "def decide(snapshot):\n"
        "    poisoned = len(snapshot.arguments['state']) == 4\n"
        f"    {body}\n"
        f"    return {DECISION}\n"
        "BOUNDARY_PLANNERS = {'mine': decide}\n"
    )
    return file


def fleet(folder: Path, *, poisoned: bool = False) -> Path:
    """Three good records, at two depths, with one file that is none; and one with a fourth sequence."""
    records = folder / "records"
    (records / "deep").mkdir(parents=True)
    recorded(records / "a.record", [*STEPS, BOUNDARY])
    recorded(records / "deep" / "b", [*STEPS[:6], BOUNDARY])
    recorded(records / "c.record", [*STEPS, *STEPS, BOUNDARY])
    (records / "notes.txt").write_text("no record\n")
    if poisoned:
        recorded(records / "p.record", [*STEPS, boundary(10, (), (), "abcd")])
    return records


def rows(report: Report, title: str) -> dict[str, tuple[str, ...]]:
    table = next(table for table in report.tables if table.title == title)
    return {row[0]: row[1:] for row in table.rows}


def fact(report: Report, name: str) -> str:
    return next(fact.value for fact in report.facts if fact.name == name)


def test_a_folder_is_the_sum_of_its_records(tmp_path: Path) -> None:
    records = fleet(tmp_path)
    report = reported(tmp_path, "replay", records, "--planners", planners(tmp_path, "pass"), "--jobs", 2)
    assert report.verdict.headline == "Equal: 81 plans of 39 events in 3 records"
    assert rows(report, "Planners") == {
        "step": ("shadow", "72"),
        "mine": (str(tmp_path / "mine.py"), "9"),
    }
    assert [row[0] for row in report.tables[0].rows] == [
        str(records / name) for name in ("a.record", "c.record", "deep/b")
    ]
    assert {check.name: (check.status, check.count) for check in report.checks} == {
        "records": (Status.PASS, 3),
        "boundary": (Status.PASS, 9),
        "page_table": (Status.PASS, 72),
    }
    assert fact(report, "passed over") == f"1 without the signature of a record: {records / 'notes.txt'}"
    assert fact(report, "engine") == "local, 2 at a time"


def test_findings_name_their_record_and_do_not_depend_on_who_ends_first(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    for name, length, later in (("a", 3, 0), ("b", 9, 1), ("c", 9, 60)):
        bad = [step(i, {"a": 5 + i}, a_kv_len=1) for i in range(2)]
        more = [step(2 + i, {"a": 9}) for i in range(later)]
        recorded(records / f"{name}.record", [*bad, *more] if name != "b" else STEPS[:length])
    reports = [reported(tmp_path, "replay", records, "--jobs", jobs) for jobs in (1, 3)]
    for report in reports:
        assert report.verdict.exit_code == 1 and report.total_findings == 4
        places = [[fact.value for fact in finding.where] for finding in report.findings]
        assert places == [
            [str(records / name), str(number), "a", "-", "kv_len"]
            for name in ("a.record", "c.record")
            for number in (0, 1)
        ]
        assert report.verdict.headline.startswith(
            f"2 of 3 records diverged, the first {records / 'a.record'}: "
        )
        assert report.tables[0].rows[0][1] == "diverged"
    assert reports[0].tables == reports[1].tables and reports[0].checks == reports[1].checks


def test_what_cannot_be_replayed_is_named_and_the_others_are_done(tmp_path: Path) -> None:
    records = fleet(tmp_path)
    whole = (records / "a.record").read_bytes()
    (records / "cut.record").write_bytes(whole[:20])
    (records / "damaged.record").write_bytes(whole[:-40] + bytes(40))
    (records / "foreign.record").write_text("{}" * 100)
    (records / "unfinished.record").write_bytes(whole[:-5])
    report = reported(tmp_path, "replay", records, "--jobs", 2)
    assert report.verdict.exit_code == 2
    assert report.verdict.headline.startswith("3 of 7 records without a verdict, the first ")
    says = {Path(name).name: (row[0], row[2]) for name, row in rows(report, "Records").items()}
    assert {name for name, row in says.items() if row[0] == "equal"} == {
        "a.record",
        "b",
        "c.record",
        "unfinished.record",
    }
    assert "cut off within its first bytes" in says["cut.record"][1]
    assert "damaged" in says["damaged.record"][1] and "not a shadow record" in says["foreign.record"][1]
    assert "bytes lost" in says["unfinished.record"][1]
    assert [finding.where[0].value for finding in report.findings] == [
        str(records / name) for name in ("cut.record", "damaged.record", "foreign.record")
    ]


def test_the_worst_code_of_a_record_is_that_of_the_folder(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    codes = []
    for name, write in (
        ("d", lambda path: recorded(path, STEPS)),
        ("c", lambda path: recorded(path, [])),
        ("b", lambda path: recorded(path, [step(0, {"a": 5}, a_kv_len=1)])),
        ("a", lambda path: path.write_text("foreign")),
    ):
        write(records / f"{name}.record")
        report = reported(tmp_path, "replay", records, "--jobs", 1)
        codes.append(report.verdict.exit_code)
    assert codes == [0, 3, 1, 2]
    assert report.verdict.headline.endswith("; 1 diverged; 1 short of coverage")


def test_a_folder_without_a_record_is_short_coverage(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "README").write_text("nothing here")
    report = reported(tmp_path, "replay", tmp_path / "empty")
    assert report.verdict.exit_code == 3 and "nothing compared" in report.verdict.headline
    assert "README" in fact(report, "passed over")


def test_a_record_that_is_reached_twice_counts_once(tmp_path: Path) -> None:
    records = fleet(tmp_path)
    (records / "again.record").symlink_to(records / "a.record")
    report = reported(tmp_path, "replay", records, records / "c.record", "--jobs", 1)
    assert len(rows(report, "Records")) == 3


def test_a_record_whose_replay_raises_is_reported_with_the_place(tmp_path: Path) -> None:
    records = fleet(tmp_path)
    mine = tmp_path / "mine.py"
    mine.write_text(
        "def fails(inputs):\n"
        "    if inputs.context.size == 4 and inputs.context.max() == 10:\n"
        "        raise ZeroDivisionError('of my own')\n"
        "    from shadow.record.planners import step_pages\n"
        "    return step_pages(inputs)\n"
        "STEP_PLANNERS = {'fails': fails}\n"
    )
    report = reported(tmp_path, "replay", records, "--planners", mine, "--jobs", 1)
    assert report.verdict.exit_code == 2
    assert report.findings[0].where[0].value == str(records / "deep/b")
    assert report.findings[0].message.startswith("its replay raised ZeroDivisionError: of my own (at ")
    assert f"{mine}:3" in report.findings[0].message
    assert sum(row[0] == "equal" for row in rows(report, "Records").values()) == 2
    alone = reported(tmp_path, "replay", records / "deep" / "b", "--planners", mine)
    assert alone.verdict.exit_code == 2 and "ZeroDivisionError" in alone.verdict.headline


def test_a_worker_that_is_killed_once_costs_nothing_but_a_second_try(tmp_path: Path) -> None:
    records = fleet(tmp_path, poisoned=True)
    body = (
        "if poisoned and not (here / 'once').exists():\n"
        "        (here / 'once').touch()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)"
    )
    report = reported(tmp_path, "replay", records, "--planners", planners(tmp_path, body), "--jobs", 2)
    assert report.verdict.exit_code == 0, report
    assert fact(report, "workers lost").startswith("1:")
    assert rows(report, "Planners")["mine"][1] == "13"


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL"),
        (
            "print('no more of this', file=sys.stderr); sys.stderr.flush(); os._exit(7)",
            "ended with exit code 7: no more of this",
        ),
    ],
)
def test_a_record_that_ends_its_worker_every_time_is_given_up(tmp_path: Path, end: str, how: str) -> None:
    records = fleet(tmp_path, poisoned=True)
    mine = planners(tmp_path, f"if poisoned: (here / f'try-{{os.getpid()}}').touch(); {end}")
    report = reported(tmp_path, "replay", records, "--planners", mine, "--jobs", 2)
    assert report.verdict.exit_code == 2
    assert report.verdict.headline.startswith(
        f"1 of 4 records without a verdict, the first {records / 'p.record'}: "
    )
    assert how in report.findings[0].message and "3 times" in report.findings[0].message
    assert len(list(tmp_path.glob("try-*"))) == 3
    assert sum(row[0] == "equal" for row in rows(report, "Records").values()) == 3


def processes(marker: str) -> list[int]:
    """Worker processes whose environment holds the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and marker.encode() in (entry / "environ").read_bytes():
                if b"shadow.record.fleet.worker" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        except OSError:
            continue
    return found


def interruptible() -> None:
    """In a child before it becomes the program: SIGINT is ignored where the tests run in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def until(condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it never came to this"
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_end_in_the_middle_leaves_no_process_and_says_what_was_done(
    tmp_path: Path, how: signal.Signals
) -> None:
    records = fleet(tmp_path, poisoned=True)
    mine = planners(tmp_path, "if poisoned: (here / 'hangs').touch(); time.sleep(600)")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FLEET_TEST": str(tmp_path)}
    command = [
        sys.executable,
        "-P",
        "-m",
        "shadow.cli",
        "replay",
        str(records),
        "--planners",
        str(mine),
        "--jobs",
        "2",
    ]
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=interruptible
    ) as process:
        # the poisoned record is neither the largest nor the last: the others go on beside it
        until(lambda: (tmp_path / "hangs").exists())
        assert processes(str(tmp_path))
        time.sleep(1)
        process.send_signal(how)
        _, said = process.communicate(timeout=60)
    if how is signal.SIGINT:
        assert process.returncode == 130
        assert "interrupted: " in said and "of 4 records replayed" in said and "Traceback" not in said
        assert not processes(str(tmp_path))
    until(lambda: not processes(str(tmp_path)))


def test_a_worker_imports_a_tree_once_and_asks_a_new_planner_for_each_record(tmp_path: Path) -> None:
    records = fleet(tmp_path)
    body = f"assert not hasattr(self, 'asked'); self.asked = True; return {DECISION}".replace(
        'snapshot.arguments["state"]', "state"
    )
    source = tree(tmp_path / "tree", body=body)
    imported = tmp_path / "imported"
    with (source / "batchgen/batchgen_worker.py").open("a") as file:
        file.write(f"\nopen({str(imported)!r}, 'a').write('once ')\n")
    report = reported(tmp_path, "replay", records, "--tree", source, "--jobs", 1)
    assert report.verdict.exit_code == 0, report
    assert rows(report, "Planners")["boundary"] == (str(source), "9")
    assert imported.read_text() == "once "


def test_ray_that_is_not_installed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    report = reported(tmp_path, "replay", fleet(tmp_path), "--engine", "ray")
    assert report.verdict.exit_code == 2
    assert "pip install 'batchgen-migrate[fleet]'" in report.verdict.headline
    assert "\n" not in report.verdict.headline


@pytest.mark.parametrize(
    "arguments",
    [
        ["records", "--jobs", "0"],
        ["records", "--engine", "threads"],
        ["no-such-folder"],
        ["records", "--ray-address", "auto"],
    ],
)
def test_wrong_options_exit_with_64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    from shadow.cli import main

    (tmp_path / "records").mkdir()
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["replay", *arguments])
    except SystemExit as left:
        code = int(str(left.code))
    assert code == 64
