"""Before/after folders: each case teaches one thing, and the program that exercises it prints the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from migration.code.tree import DiskTree
from migration.move.cut import CutClean, CutPlan, CutRefused, plan_cut

from .golden_cases import GOLDEN, apply, cut, files, recipe_of

MOVED = sorted(path.parent.name for path in GOLDEN.glob("*/after"))


def test_no_case_is_forgotten():
    assert sorted(path.name for path in GOLDEN.iterdir() if path.is_dir()) == sorted([*MOVED, "refusals"])


@pytest.mark.parametrize("case", MOVED)
def test_cut_gives_exactly_the_files_of_after(case: str, tmp_path: Path):
    outcome = cut(case)
    assert isinstance(outcome, CutPlan), outcome
    apply(outcome, GOLDEN / case / "before", tmp_path / "got")
    assert files(tmp_path / "got") == files(GOLDEN / case / "after")


@pytest.mark.parametrize("case", MOVED)
def test_the_program_prints_the_same_before_and_after(case: str):
    printed = []
    for side in ("before", "after"):
        run = subprocess.run(
            [sys.executable, str(GOLDEN / case / "exercise.py")],
            env={**os.environ, "PYTHONPATH": str(GOLDEN / case / side), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        printed.append(run.stdout)
    assert printed[0] == printed[1] != ""


@pytest.mark.parametrize("case", MOVED)
def test_a_second_cut_finds_nothing_to_do(case: str):
    assert isinstance(plan_cut(recipe_of(case), DiskTree(GOLDEN / case / "after")), CutClean)


def test_only_an_import_that_somebody_may_miss_is_remarked_upon():
    """PAGES stays in the worker as well, but the handler takes it from there: nothing to remark."""
    outcome = cut("imports")
    assert isinstance(outcome, CutPlan)
    assert outcome.notes == ("app/worker.py no longer uses json, kept: app/other.py may take it from there",)


def test_refusals_name_method_line_and_reason():
    outcome = cut("refusals")
    assert isinstance(outcome, CutRefused)
    got = "".join(f"{r.code} {r.where}:{r.line} {r.message}\n" for r in outcome.refusals)
    assert got == (GOLDEN / "refusals" / "expected.txt").read_text(encoding="utf-8")
    assert all(refusal.way_out for refusal in outcome.refusals)
