"""Before and after, side by side: each case teaches one thing, and what it exercises gives the same."""

from __future__ import annotations

from typing import Any

import pytest

from migration.declare.plan import DeclareClean, DeclarePlan, DeclareRefused

from .declare_golden import GOLDEN, declare

DECLARED = sorted(path.parent.name for path in GOLDEN.glob("*/after.py"))


def exercised(data: bytes) -> str:
    space: dict[str, Any] = {}
    exec(compile(data, "case.py", "exec", dont_inherit=True), space)
    return repr(space["exercise"]())


def test_no_case_is_forgotten():
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted([*DECLARED, "refusals"])


@pytest.mark.parametrize("case", DECLARED)
def test_a_declaration_gives_exactly_the_bytes_of_after(case: str):
    outcome = declare(case)
    assert isinstance(outcome, DeclarePlan), outcome
    assert outcome.change.after == (GOLDEN / case / "after.py").read_bytes()


@pytest.mark.parametrize("case", DECLARED)
def test_the_case_does_the_same_before_and_after(case: str):
    before, after = (exercised((GOLDEN / case / f"{side}.py").read_bytes()) for side in ("before", "after"))
    assert before == after and len(before) > 20


@pytest.mark.parametrize("case", DECLARED)
def test_a_second_run_finds_nothing_to_do(case: str):
    assert isinstance(declare(case, (GOLDEN / case / "after.py").read_bytes()), DeclareClean)


@pytest.mark.parametrize("case", DECLARED)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_other_line_ends_and_other_indentation_give_the_same_lines(case: str, mark: bytes):
    def other(data: bytes) -> bytes:
        lines = [
            line.replace(b"\t", b"    ") if b"\t" in line else line.replace(b"    ", b"\t")
            for line in data.splitlines()
        ]
        return mark + b"\r\n".join(lines)  # and no line end at the end

    outcome = declare(case, other((GOLDEN / case / "before.py").read_bytes()))
    assert isinstance(outcome, DeclarePlan), outcome
    assert outcome.change.after == other((GOLDEN / case / "after.py").read_bytes())


def test_a_refusal_names_the_attribute_the_line_and_why():
    outcome = declare("refusals")
    assert isinstance(outcome, DeclareRefused)
    got = "".join(f"{r.code} {r.where} {r.line} {r.message}\n" for r in outcome.refusals)
    assert got == (GOLDEN / "refusals" / "expected.txt").read_text(encoding="utf-8")
