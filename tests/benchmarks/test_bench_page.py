"""The page of `make bench`: ratios that were told, beside their bars and the committed baseline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.page import BASELINE, main
from benchmarks.ratios import Ratio, read, tell

QUICK = Ratio("scores", 1.2, "torch.equal", bar=0.8, figures={"GB/s": 12.5})
COSTLY = Ratio("structural", 1.9, "a step", bar=2.0, at_least=False, unit="%")


def page(
    folder: Path, *ratios: Ratio, baseline: dict[str, float] | None = None, more: tuple[str, ...] = ()
) -> int:
    for ratio in ratios:
        tell(ratio, folder / "ratios.jsonl")
    if baseline is not None:
        (folder / "baseline.json").write_text(json.dumps({"ratios": baseline}))
    return main(["--found", str(folder / "ratios.jsonl"), "--baseline", str(folder / "baseline.json"), *more])


def verdicts(folder: Path) -> dict[str, str]:
    report = json.loads((folder / "report.json").read_text())
    return {row["name"]: row["verdict"] for row in report["ratios"]}


def test_a_run_whose_bars_all_hold_ends_with_0(tmp_path: Path) -> None:
    assert page(tmp_path, QUICK, COSTLY) == 0
    assert verdicts(tmp_path) == {"scores": "new", "structural": "new"}


@pytest.mark.parametrize(
    "missed",
    [
        Ratio("scores", 0.79, "torch.equal", bar=0.8),
        Ratio("structural", 2.01, "a step", bar=2.0, at_least=False),
    ],
    ids=["too little", "too much"],
)
def test_a_missed_bar_ends_with_1_and_is_first_on_the_page(tmp_path: Path, missed: Ratio) -> None:
    assert page(tmp_path, missed, Ratio("other", 1.0, "itself")) == 1
    assert verdicts(tmp_path)[missed.name] == "missed"
    assert "1 of 2 ratios miss their bar" in (tmp_path / "index.html").read_text()


def test_nothing_measured_is_no_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert page(tmp_path) == 3
    assert "make bench" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("before", "verdict"), [(0.9, "better"), (1.2, "same"), (1.0, "same"), (2.0, "worse")], ids=str
)
def test_a_ratio_is_held_against_what_it_was(tmp_path: Path, before: float, verdict: str) -> None:
    assert page(tmp_path, QUICK, baseline={"scores": before}) == 0
    assert verdicts(tmp_path) == {"scores": verdict}


def test_less_is_better_where_the_bar_says_so(tmp_path: Path) -> None:
    page(tmp_path, COSTLY, baseline={"structural": 1.0})
    assert verdicts(tmp_path) == {"structural": "worse"}


def test_what_the_baseline_has_and_the_run_has_not_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page(tmp_path, QUICK, baseline={"scores": 1.2, "replay": 7.0})
    assert "not measured in this run, but in the baseline: replay" in capsys.readouterr().out
    assert json.loads((tmp_path / "report.json").read_text())["missing"] == ["replay"]


def test_a_ratio_that_was_told_twice_counts_once(tmp_path: Path) -> None:
    tell(Ratio("scores", 0.1, "torch.equal"), tmp_path / "ratios.jsonl")
    tell(QUICK, tmp_path / "ratios.jsonl")
    assert read(tmp_path / "ratios.jsonl") == [QUICK]


def test_a_damaged_line_is_named_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tell(QUICK, tmp_path / "ratios.jsonl")
    with (tmp_path / "ratios.jsonl").open("a") as file:
        file.write('{"name": "cut sho')
    assert page(tmp_path) == 2
    assert "ratios.jsonl:2 is no ratio" in capsys.readouterr().out.replace("\n", "")


def test_a_saved_run_is_the_next_one_s_baseline(tmp_path: Path) -> None:
    assert page(tmp_path, QUICK, more=("--save",)) == 0
    assert verdicts(tmp_path) == {"scores": "same"}


def test_figures_and_names_are_text_on_the_page(tmp_path: Path) -> None:
    page(tmp_path, Ratio("a <b> of & c", 1.0, "itself", figures={"k": "<script>"}))
    html = (tmp_path / "index.html").read_text()
    assert "a &lt;b&gt; of &amp; c" in html and "<script>" not in html


def test_what_misses_its_bar_is_no_baseline(tmp_path: Path) -> None:
    missed = Ratio("structural", 2.5, "a step", bar=2.0, at_least=False)
    assert page(tmp_path, QUICK, missed, more=("--save",)) == 1
    assert json.loads((tmp_path / "baseline.json").read_text())["ratios"] == {"scores": 1.2}


def test_the_committed_baseline_can_be_read() -> None:
    ratios = json.loads(BASELINE.read_text())["ratios"]
    assert ratios and all(isinstance(value, float | int) for value in ratios.values())
