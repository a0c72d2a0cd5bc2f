"""`shadow compare` with workloads, on the real worker and the `tiny` model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reports import Report, from_json
from shadow.cli import main
from shadow.workloads.situations import REACHABLE

ROOT = Path(__file__).parents[3]
TINY = ("--model", "tiny", "--threads", "1")
SMALL = (*TINY, "--page-size", "16", "--max-batch", "8", "--gpu-pages", "64", "--host-pages", "128")


def compare(tmp_path: Path, *arguments: str) -> tuple[int, Report]:
    """(exit code, the report), run where the tree is: both sides are this folder."""
    path = tmp_path / "report.json"
    command = [sys.executable, "-m", "shadow.cli", "compare", *arguments, "--json", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert path.is_file(), done.stdout + done.stderr
    return done.returncode, from_json(path.read_text())


def table(report: Report, title: str) -> dict[str, tuple[str, ...]]:
    (found,) = [table for table in report.tables if table.title == title]
    return {row[0]: row[1:] for row in found.rows}


def facts(report: Report) -> dict[str, str]:
    return {fact.name: fact.value for fact in report.facts}


def test_without_files_a_mixed_set_is_run_for_so_many_steps(tmp_path: Path) -> None:
    code, report = compare(tmp_path, *SMALL, "--steps", "40")
    assert code == 0, report.verdict
    assert facts(report)["ends after"] == "40 decode steps"
    assert [row[0] for row in table(report, "Time").values()] == ["40", "40"]
    tokens = int(table(report, "Realised tokens")["mixed"][0])
    assert 40 < tokens < 400


def test_two_levels_run_back_to_back_and_every_row_reaches_its_cap(tmp_path: Path) -> None:
    code, report = compare(
        tmp_path, *SMALL, "--workload", "L1,L2-2048", "--scale", "caps/64,prompts/16", "--content-every", "8"
    )
    assert code == 0, report.verdict
    assert table(report, "Realised tokens") == {
        "L1": ("16", "8", "2 of 2"),
        "L2-2048": ("256", "32", "8 of 8"),
    }
    said = facts(report)
    assert said["scale"] == "caps/64, prompts/16" and "each 8th decode step" in said["content"]
    assert said["workload"] == "L1 (2 prompts, cap 8), then L2-2048 (8 prompts, cap 32)"


def test_a_workload_whose_rows_end_early_is_short(tmp_path: Path) -> None:
    # 3 pages of 16 hold prompt and cap of the shortest rows only; the others are refused by the engine.
    few = (*TINY, "--page-size", "16", "--gpu-pages", "3", "--host-pages", "9")
    code, report = compare(tmp_path, *few, "--workload", "L1", "--scale", "caps/16,prompts/4")
    assert code == 3, report.verdict
    assert "rows of L1 reached it, 90% must" in report.verdict.headline


def test_every_boundary_situation_is_reached_on_tiny(tmp_path: Path) -> None:
    code, report = compare(tmp_path, "--workload", "boundaries", "--threads", "1")
    assert code == 0, report.verdict
    situations = table(report, "Boundary situations")
    assert {name for name, row in situations.items() if row[1] == "yes"} == REACHABLE
    assert all(int(situations[name][0]) > 0 for name in REACHABLE)


@pytest.mark.slow
def test_with_room_for_everybody_the_situations_are_short_and_the_table_says_what_to_do(
    tmp_path: Path,
) -> None:
    roomy = ("--gpu-pages", "600", "--host-pages", "1200", "--threads", "1")
    code, report = compare(tmp_path, "--workload", "boundaries", *roomy)
    assert code == 3, report.verdict
    row = table(report, "Boundary situations")["evicted twice"]
    assert row[:2] == ("0", "SHORT") and "reached by: fewer --host-pages" in row[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--workload", "L3", "--model", "smollm2"],
            "L3 needs a context of 10,625 tokens, smollm2 has 8,192",
        ),
        (["--workload", "L9"], "there is no workload 'L9'"),
        (["--workload", "mixed", "--scale", "caps/2"], "mixed is small as it is"),
        (["--requests", __file__, "--workload", "L1"], "--requests are a workload of their own"),
        (["--workload", "L1", "--model", "no-such-model"], "model 'no-such-model' not found"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["compare", *arguments]) == 64
    error = capsys.readouterr().err
    assert error.startswith(f"shadow compare: {said}") and error.count("\n") == 1


def test_a_scale_that_is_none_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["compare", "--workload", "L1", "--scale", "half"])
    assert caught.value.code == 64 and "caps/16,prompts/4" in capsys.readouterr().err
