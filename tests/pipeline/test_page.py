"""What a page says of a shadow comparison that compared too little."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from migration.slices import load_recipe
from pipeline.branches import Commit
from pipeline.compared import Compared, summed
from pipeline.page import Part, PullRequest, report
from pipeline.running import Ran
from pipeline.stages import Stage
from shadow.experiment import MethodCount, Summary, Verdict
from tests.migration.golden_cases import GOLDEN

HELD = Ran("verify", "migrate verify", 0, "cache: holds: 1 method", 1.0, 1.0)
GROWN = (("_grow", MethodCount(calls=5, compared=5)),)
GATE = Summary("APP_CACHE", Verdict.EQUAL, 5, 5, 0, 0, (), GROWN, "g.jsonl")
COMPARED = Compared(
    (dataclasses.replace(HELD, name="shadow COMPARE", command="shadow compare"),),
    (GATE,),
    (("decode-cleanup", 3), ("leftovers", 2)),
    "caps/32",
    "cpu",
)


def pull_request(compared: Compared) -> PullRequest:
    recipe = load_recipe(str(Path(GOLDEN / "handles/slice.toml")))
    stage = Stage("1.2", 1, "gate", recipe, (("_grow", "gated: isolated"),), (), 0.1)
    check = dataclasses.replace(HELD, name="check", command="migrate check")
    part = Part(stage, Commit("1.2", "b" * 40, "a" * 40), (("app/worker.py", 4, 1),), HELD, check, None)
    return PullRequest("1.2", (part,), compared, (), (("gate", 0.1),), (), 1.0)


def test_equal_calls_are_counted_in_the_verdict() -> None:
    found = report(pull_request(COMPARED))
    assert found.verdict.exit_code == 0
    assert found.verdict.headline == "holds: 1 method, +4 -1 lines, 5 calls compared and equal"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"gates": ()}, 3),
        ({"gates": (dataclasses.replace(GATE, compared=0),)}, 3),
        ({"gates": (dataclasses.replace(GATE, verdict=Verdict.COVERAGE_SHORT),)}, 3),
        ({"gates": (dataclasses.replace(GATE, verdict=Verdict.DIVERGED),)}, 1),
        ({"gates": (dataclasses.replace(GATE, verdict=Verdict.HARNESS_FAILED),)}, 2),
        ({"cleanup": (("decode-cleanup", 3), ("leftovers", 0))}, 3),
        ({"rans": (dataclasses.replace(COMPARED.rans[0], code=1),)}, 1),
    ],
)
def test_a_comparison_that_is_short_or_differs_does_not_pass(changed: dict[str, object], code: int) -> None:
    found = report(pull_request(dataclasses.replace(COMPARED, **changed)))  # type: ignore[arg-type]
    assert found.verdict.exit_code == code and found.verdict.headline.startswith("not to be merged: ")
    assert any(check.status.value != "pass" for check in found.checks)


def test_a_harness_that_failed_before_it_compared_anything_is_an_error_and_not_short() -> None:
    failed = dataclasses.replace(GATE, verdict=Verdict.HARNESS_FAILED, compared=0)
    found = report(pull_request(dataclasses.replace(COMPARED, gates=(failed,))))
    assert {check.name: check.status.value for check in found.checks}["gate APP_CACHE"] == "error"


@pytest.mark.parametrize("text", [None, "", '{"record": "divergence"}\n'])
def test_a_run_that_did_not_come_to_its_end_has_summed_up_nothing(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "gates.jsonl"
    if text is not None:
        path.write_text(text)
    assert summed(path) == ()
