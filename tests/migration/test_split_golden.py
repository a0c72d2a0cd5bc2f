"""Before and after, side by side: each case teaches one thing, and what it exercises gives the same."""

from __future__ import annotations

from typing import Any

import pytest

from migration.split.plan import SplitClean, SplitPlan, SplitRefused

from .split_golden import GOLDEN, split

SPLIT = sorted(path.parent.name for path in GOLDEN.glob("*/after.py"))


def exercised(data: bytes) -> str:
    space: dict[str, Any] = {}
    exec(compile(data, "case.py", "exec", dont_inherit=True), space)
    return repr(space["exercise"]())


def test_no_case_is_forgotten():
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted([*SPLIT, "refusals"])


@pytest.mark.parametrize("case", SPLIT)
def test_a_split_gives_exactly_the_bytes_of_after(case: str):
    outcome = split(case)
    assert isinstance(outcome, SplitPlan), outcome
    assert outcome.change.after == (GOLDEN / case / "after.py").read_bytes()


@pytest.mark.parametrize("case", SPLIT)
def test_the_case_does_the_same_before_and_after(case: str):
    before, after = (exercised((GOLDEN / case / f"{side}.py").read_bytes()) for side in ("before", "after"))
    assert before == after and len(before) > 20


@pytest.mark.parametrize("case", SPLIT)
def test_a_second_split_finds_nothing_to_do(case: str):
    assert isinstance(split(case, (GOLDEN / case / "after.py").read_bytes()), SplitClean)


@pytest.mark.parametrize("case", SPLIT)
def test_a_case_with_windows_line_ends_and_tabs_gives_the_same_lines(case: str):
    def other(data: bytes) -> bytes:
        lines = data.replace(b"\t", b"    ").splitlines()
        return b"\r\n".join(lines) + b"\r\n" * data.endswith(b"\n")

    outcome = split(case, other((GOLDEN / case / "before.py").read_bytes()))
    assert isinstance(outcome, SplitPlan)
    assert outcome.change.after == other((GOLDEN / case / "after.py").read_bytes())


def test_a_refusal_names_what_stays_and_why():
    outcome = split("refusals")
    assert isinstance(outcome, SplitRefused)
    got = "".join(f"{r.code} {r.line} {r.message}\n" for r in outcome.refusals)
    assert got == (GOLDEN / "refusals" / "expected.txt").read_text(encoding="utf-8")


def test_the_budget_that_a_refusal_names_can_be_met():
    outcome = split("refusals")
    assert isinstance(outcome, SplitRefused) and outcome.reachable == 13
    assert isinstance(split("refusals", budget=13), SplitPlan)
