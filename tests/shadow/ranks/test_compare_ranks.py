"""Two ranks of each path, real processes: equal, and a fault of one rank found on that rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports import to_junit, to_markdown
from reports.html import to_html
from shadow.cli import main

from .support import MUTANTS, compare, table, where, write_requests

pytestmark = pytest.mark.multirank

NATIVE = (
    "--candidate-env",
    "BATCHGEN_WORKER_KV_NATIVE=1",
    "--candidate-env",
    "BATCHGEN_WORKER_DECODE_NATIVE=1",
)


def fault(name: str, *more: str) -> tuple[str, ...]:
    return ("--steps", "8", "--mutants", str(MUTANTS), "--mutant", name, "--mutant-rank", "1", *more)


@pytest.mark.parametrize(
    ("model", "per_node", "options"),
    [
        pytest.param("tiny-dual", 1, (), id="two nodes, two pools each"),
        pytest.param("tiny", 8, NATIVE, id="handlers of both gates, one host pool"),
    ],
)
def test_two_ranks_are_equal_and_each_was_compared(
    tmp_path: Path, model: str, per_node: int, options: tuple[str, ...]
) -> None:
    code, report, _ = compare(tmp_path, *options, model=model, per_node=per_node)
    assert code == 0, report
    assert "decode steps on 2 ranks" in report.verdict.headline
    checked = {check.name: check.count for check in report.checks}
    assert checked.keys() >= {"effects", "kv", "logits", "tokens", "host_kv", "boundary"} and all(
        checked.values()
    )
    rows = table(report, "Ranks")
    assert rows.keys() == {"0", "1"}
    for row in rows.values():
        assert int(row["values"].replace(",", "")) > 10_000
        assert (row["differ"], row["never compared"]) == ("0", "-")
        assert (row["legacy side"], row["candidate side"]) == ("done", "done")
    (said,) = [fact.value for fact in report.facts if fact.name == "ranks"]
    assert f"{2 // min(2, per_node)} host pool" in said


def test_a_fault_of_one_rank_is_found_on_that_rank_and_every_report_says_so(tmp_path: Path) -> None:
    code, report, shown = compare(tmp_path, *fault("other-tokens"))
    assert code == 1, report
    assert (
        report.findings[0].code == "tokens" and where(report)["rank"] == "1" and where(report)["step"] == "3"
    )
    assert {fact.value for finding in report.findings for fact in finding.where if fact.name == "rank"} == {
        "1"
    }
    assert report.verdict.headline.startswith("Diverged at rank 1, step 3, sequence ")
    rows = table(report, "Ranks")
    assert rows["0"]["differ"] == "0" and rows["1"]["differ"] == rows["1"]["forced"] != "0"
    assert rows["1"]["candidate side"] == "done", "it goes on with the control's tokens"
    assert "rank       1" in shown
    assert "| rank | 1 |" in to_markdown(report)
    assert "rank: 1\nstep: 3\n" in to_junit(report)
    assert "rank 1, step 3" in to_html(report)


@pytest.mark.parametrize(
    ("name", "line"), [("one-barrier-more", "dist.barrier()"), ("one-collective-less", "dist.")]
)
def test_a_collective_of_one_path_alone_is_a_finding_with_its_line(
    tmp_path: Path, name: str, line: str
) -> None:
    code, report, _ = compare(tmp_path, *fault(name, "--timeout", "60"))
    assert code == 1, report
    first = report.findings[0]
    assert (first.code, where(report)["rank"], where(report)["field"]) == ("effects", "1", "next collective")
    assert f"{line}" in str(first.actual) and ".py:" in str(first.actual) + str(first.expected)
    if name == "one-barrier-more":
        assert f"dist.barrier() at {MUTANTS.relative_to(MUTANTS.parents[3])}:" in str(first.actual)
    assert "Connection closed" not in str(report.findings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "waits"), [("unseen-barrier", "it waits in dist.barrier at"), ("falls-asleep", "it waits at")]
)
def test_a_rank_that_hangs_is_named_with_the_line_where_it_waits(
    tmp_path: Path, name: str, waits: str
) -> None:
    code, report, _ = compare(tmp_path, *fault(name, "--timeout", "20"))
    assert code == 1, report
    first = report.findings[0]
    assert (first.code, where(report)["rank"]) == ("outcome", "1")
    assert f"{waits} {MUTANTS.relative_to(MUTANTS.parents[3])}:" in str(first.actual)
    assert "gave no sign of life for 20 s" in str(first.actual)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "raised ArithmeticError: this rank is broken"),
        ("leaves", "ended with exit code 3 before its run"),
    ],
)
def test_a_rank_that_fails_alone_is_the_only_finding(tmp_path: Path, name: str, said: str) -> None:
    code, report, _ = compare(tmp_path, *fault(name))
    assert code == 1, report
    (first,) = report.findings
    assert (first.code, where(report)["rank"]) == ("outcome", "1")
    assert str(first.actual).startswith(said)
    assert table(report, "Ranks")["1"]["candidate side"].startswith(said)


def test_a_rank_that_never_decoded_is_coverage_short(tmp_path: Path) -> None:
    one = write_requests(tmp_path / "one.jsonl", count=1)
    code, report, _ = compare(tmp_path, requests=one)
    assert code == 3, report
    assert "kv on rank 1" in report.verdict.headline
    rows = table(report, "Ranks")
    assert "tokens" in rows["1"]["never compared"] and rows["0"]["never compared"] == "-"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--ranks", "2", "--mutant", "x", "--mutant-rank", "2"), "--mutant-rank 2: the ranks are 0 to 1"),
        (("--mutant-rank", "0"), "name it with --mutant"),
        (("--ranks", "2", "--graft"), "--graft compares one rank"),
        (("--ranks", "2", "--pairing", "batch-order"), "--pairing batch-order compares one rank"),
        (("--ranks", "0"), "'0' is not a whole number above 0"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["compare", *arguments])
    assert left.value.code == 64
    assert said in capsys.readouterr().err
