"""`shadow noise` and `shadow compare --noise` on the real worker with its tiny model."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reports import Report, from_json
from shadow.cli import main
from shadow.diff import Comparison, compare_events
from shadow.messages import Setup
from shadow.noise import Bound, Class, NoiseFloor, StepScore, load, save
from shadow.noise.classes import MEASURABLE, observed, rules, varied
from shadow.noise.conditions import conditions_of
from shadow.noise.judging import Judge
from shadow.noise.measure import measure_class
from shadow.noise.meter import Meter
from shadow.observation import Event, Key, Kind, Observed, Point, Row

ROOT = Path(__file__).parents[2]
ENGINE = ("--model", "tiny", "--page-size", "4", "--gpu-pages", "64", "--host-pages", "200", "--threads", "1")


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("requests") / "requests.jsonl"
    bodies = [
        {"prompt": "a few words to turn around", "max_tokens": 10, "ignore_eos": True},
        {"prompt": [5, 6, 7, 8, 9], "max_tokens": 14, "ignore_eos": True},
    ]
    lines = [
        json.dumps({"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions", "body": body})
        for i, body in enumerate(bodies)
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def measured(requests: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    """(noise.json, report) of two classes, two runs each."""
    folder = tmp_path_factory.mktemp("noise")
    command = ["noise", "--tree", str(ROOT), "--requests", str(requests), *ENGINE, "--runs", "2"]
    command += ["--class", "same", "--class", "dtype", "--lengths", "16,64", "-o", str(folder / "noise.json")]
    assert main([*command, "--json", str(folder / "report.json")]) == 0
    return folder / "noise.json", from_json((folder / "report.json").read_text())


def compared(requests: Path, folder: Path, *more: str, legacy: Path = ROOT, candidate: Path = ROOT) -> Report:
    trees = ["--legacy", str(legacy), "--candidate", str(candidate)]
    command = ["compare", *trees, "--requests", str(requests), *ENGINE]
    code = main([*command, "--json", str(folder / "report.json"), *more])
    report = from_json((folder / "report.json").read_text())
    assert report.verdict.exit_code == code
    return report


def fact(report: Report, name: str) -> str:
    return next(fact.value for fact in report.facts if fact.name == name)


def test_each_class_gets_bounds_of_its_own(measured: tuple[Path, Report]) -> None:
    floor = load(measured[0])
    assert floor.classes == (Class.SAME, Class.DTYPE)
    same, dtype = (floor.bound(pairing, "logits") for pairing in floor.classes)
    assert same is not None and same.bit_equal and same.limit == 0.0
    assert dtype is not None and dtype.maximum is not None and 1e-4 < dtype.maximum < 0.5
    assert dtype.limit == 2 * dtype.maximum and (dtype.runs, dtype.margin) == (2, 2.0)
    assert dtype.steps > 2 * 14, "prefill and decode steps of both runs"
    for kind in ("kv", "page_table", "boundary", "result"):
        assert floor.bound(Class.DTYPE, kind) is not None
    assert floor.bound(Class.DTYPE, "tokens") is None, "flips are judged by the logits"
    assert (floor.conditions.model, floor.conditions.page_size) == ("tiny", 4)


def test_the_report_shows_bounds_rates_and_what_they_cannot_see(measured: tuple[Path, Report]) -> None:
    report = measured[1]
    bounds, blind = report.tables
    rows = {(row[0], row[1]): row for row in bounds.rows}
    assert rows["same", "logits"][4:6] == ("bit-equal", "0")
    assert rows["dtype", "logits"][6].startswith("<= 1/")
    assert blind.columns == ("fault", "same", "dtype", "structural check")
    seen = {row[0]: row[1:3] for row in blind.rows}
    assert seen["two pages swapped"] == ("missed", "missed")
    assert seen["newest token dropped"][0] == "seen up to 64"


def test_a_run_within_the_noise_passes_and_says_by_which_bound(
    measured: tuple[Path, Report], requests: Path, tmp_path: Path
) -> None:
    report = compared(requests, tmp_path, "--pairing", "dtype", "--noise", str(measured[0]))
    assert report.verdict.exit_code == 0
    assert report.verdict.headline.startswith("Equal within noise:")
    assert "differ within the bound" in report.verdict.headline
    assert fact(report, "noise floor").endswith("sides differ in: dtype")
    assert "2 A/A runs" in fact(report, "bound of the logits")
    assert "of logits" in fact(report, "within noise")
    assert any("could not have seen" in table.title for table in report.tables)


def test_without_a_noise_floor_the_report_says_that_no_difference_passes(
    requests: Path, tmp_path: Path
) -> None:
    report = compared(requests, tmp_path)
    assert report.verdict.headline.startswith("Equal:")
    assert fact(report, "bounds").startswith("0: bit by bit")


def test_bounds_of_zero_and_small_bounds_let_the_same_run_diverge(
    measured: tuple[Path, Report], requests: Path, tmp_path: Path
) -> None:
    floor = load(measured[0])
    small = [replace(b, maximum=1e-9 if b.maximum else b.maximum) for b in floor.bounds]
    save(tmp_path / "small.json", replace(floor, bounds=tuple(small)))
    report = compared(requests, tmp_path, "--pairing", "dtype", "--noise", str(tmp_path / "small.json"))
    assert report.verdict.exit_code == 1
    logits = [finding for finding in report.findings if finding.code == "logits"]
    assert logits and "bound 2e-09" in logits[0].message


@pytest.mark.parametrize("faulty_is_legacy", [False, True])
def test_the_arbiter_says_which_side_of_a_divergence_is_further_off(
    requests: Path, tmp_path: Path, faulty_is_legacy: bool
) -> None:
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "batchgen", tmp_path / "tree" / "batchgen", ignore=skip)
    file = tmp_path / "tree" / "batchgen" / "attention" / "torch_paged.py"
    honest = "return torch.bmm(torch.softmax(scores, -1), values).view(q.shape)"
    fault = honest.replace("values)", "values * (1.01 if scores.shape[-1] > 31 else 1))")
    assert honest in file.read_text()
    file.write_text(file.read_text().replace(honest, fault))
    name, trees = "candidate", {"candidate": tmp_path / "tree"}
    if faulty_is_legacy:
        name, trees = "legacy", {"legacy": tmp_path / "tree"}
    report = compared(requests, tmp_path, "--arbitrate", **trees)
    assert report.verdict.exit_code == 1
    said = fact(report, "arbiter")
    step = (
        next(check.detail for check in report.checks if check.name == "logits")
        .split("step ")[1]
        .split(",")[0]
    )
    assert int(step) > 0, "tokens were decoded before"
    assert said.startswith(f"step {step}, sequence r0: ") and said.endswith(f"the {name} is further off")
    distances = re.findall(r"(?:legacy|candidate) (\S+)(?:,| from)", said)
    assert min(map(float, distances)) < 1e-5 < 1e-4 < max(map(float, distances))


def test_nothing_is_arbitrated_where_no_logits_diverge(requests: Path, tmp_path: Path) -> None:
    report = compared(requests, tmp_path, "--arbitrate")
    assert fact(report, "arbiter") == "not needed: no row of logits diverged"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--pairing", "threads"), "has no bounds for sides that differ in threads, only same, dtype"),
        (("--page-size", "8"), "was measured with page_size 4 (here 8)"),
        (("--noise", "missing.json"), "missing.json cannot be read"),
    ],
)
def test_a_noise_floor_that_does_not_fit_is_a_usage_error_in_one_line(
    measured: tuple[Path, Report],
    requests: Path,
    more: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = [
        "compare",
        "--legacy",
        str(ROOT),
        "--candidate",
        str(ROOT),
        "--requests",
        str(requests),
        *ENGINE,
    ]
    assert main([*command, "--noise", str(measured[0]), *more]) == 64
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_sides_that_cannot_run_give_no_bounds(requests: Path, tmp_path: Path) -> None:
    command = ["noise", "--tree", str(ROOT), "--requests", str(requests), "--model", "missing.gguf"]
    command += ["-o", str(tmp_path / "noise.json"), "--json", str(tmp_path / "report.json")]
    assert main(command) == 2
    report = from_json((tmp_path / "report.json").read_text())
    assert "missing.gguf" in report.verdict.headline and not (tmp_path / "noise.json").exists()


def test_each_run_has_other_prompts(requests: Path, tmp_path: Path) -> None:
    control = Setup(str(ROOT), (str(requests),), 1, {"model": "tiny", "page_size": 4}, max_steps=1)
    found = measure_class(control, Class.SAME, 2, tmp_path, margin=1.0, timeout=60)
    assert isinstance(found, tuple)
    prompts = [
        [json.loads(line)["body"]["prompt"] for line in (tmp_path / f"{run}-requests.jsonl").open()]
        for run in range(2)
    ]
    assert prompts == [
        ["a few words to turn around", [5, 6, 7, 8, 9]],
        ["few words to turn around a", [6, 7, 8, 9, 5]],
    ]


# classes


def test_a_class_changes_one_thing_and_lets_numbers_be_compared() -> None:
    control = Setup("tree", ("r",), 2, {"model": "tiny"})
    assert varied(control, Class.SAME) == control
    assert varied(control, Class.BATCH_ORDER, 3) == replace(control, order=3)
    assert varied(control, Class.THREADS).threads == 4
    assert varied(control, Class.BUCKET).options["cuda_graphs"] is False
    assert varied(control, Class.DTYPE).options["dtype"] == "bfloat16"
    for pairing in set(Class) - set(MEASURABLE):
        with pytest.raises(ValueError, match="takes two engines"):
            varied(control, pairing)
    for pairing in Class:
        assert not rules(pairing).ignores(Kind.LOGITS, "logits")
        assert observed(control, pairing).numeric is (pairing is not Class.SAME)


# meter and judge, on events


def event(*rows: tuple[str, list[float], int], digest: int = 0) -> Event:
    values: dict[Key, Observed] = {Key(Kind.SEQUENCE, None, "digest"): digest}
    for label, logits, _ in rows:
        values[Key(Kind.LOGITS, label, "logits")] = Row(np.array(logits, dtype=np.float32))
    for label, _, token in rows:
        values[Key(Kind.TOKENS, label, "token")] = token
    return Event(Point.DECODE, 3, values)


def reviewed(judge: Judge | Meter, ours: Event, theirs: Event) -> Comparison:
    return judge(ours, theirs, compare_events(ours, theirs))


def floor(limit: float | None, kind: str = "logits") -> NoiseFloor:
    bound = Bound(Class.THREADS, kind, 2, 20, limit, 1.0, limit == 0)
    return NoiseFloor(conditions_of(Setup("t", (), 1)), (bound,))


CLOSE = event(("a", [3.0, 4.0], 1)), event(("a", [3.0, 4.05], 1))  # 0.01 off


def test_the_meter_notes_the_largest_score_of_each_step_by_kind() -> None:
    meter = Meter()
    ours = event(("a", [3.0, 4.0], 1), ("b", [3.0, 4.0], 1))
    assert reviewed(meter, ours, event(("a", [3.0, 4.05], 1), ("b", [3.0, 4.5], 0), digest=1)).mismatches
    reviewed(meter, ours, ours)
    first, second = meter.steps[Kind.LOGITS]
    assert first.differs and first.score == pytest.approx(0.1)
    assert second == StepScore(False)
    assert meter.steps[Kind.SEQUENCE][0] == StepScore(True, None)
    assert Kind.TOKENS not in meter.steps


def test_the_judge_drops_what_is_within_noise_and_counts_it() -> None:
    judge = Judge(floor(0.02), Class.THREADS)
    assert not reviewed(judge, *CLOSE).mismatches
    assert judge.within[Kind.LOGITS] == 1 and judge.largest == pytest.approx(0.01, rel=1e-4)
    (kept,) = reviewed(Judge(floor(0.005), Class.THREADS), *CLOSE).mismatches
    assert kept.detail == "bound 0.005"
    (kept,) = reviewed(Judge(floor(0.0), Class.THREADS), *CLOSE).mismatches
    assert kept.detail == "bit-equal in A/A"


def test_a_kind_without_a_bound_is_compared_bit_by_bit() -> None:
    ours, theirs = event(), event(digest=1)
    assert reviewed(Judge(floor(0.02), Class.THREADS), ours, theirs).mismatches
    assert reviewed(Judge(floor(0.02), Class.SAME), *CLOSE).mismatches, "bounds of another class do not count"
    unscored = Judge(floor(None, "sequence"), Class.THREADS)
    assert not reviewed(unscored, ours, theirs).mismatches
    assert unscored.unjudged[Kind.SEQUENCE] == 1


def test_a_flip_in_a_near_tie_is_counted_any_other_is_a_divergence_with_its_margin() -> None:
    tie = event(("a", [5.0, 4.999, 1.0], 0)), event(("a", [4.999, 5.0, 1.0], 1))
    judge = Judge(floor(0.01), Class.THREADS)
    assert not reviewed(judge, *tie).mismatches and judge.near_ties == 1
    wrong = event(("a", [5.0, 4.999, 1.0], 0)), event(("a", [5.0, 4.999, 1.0], 2))
    (kept,) = reviewed(judge, *wrong).mismatches
    assert kept.kind is Kind.TOKENS and kept.detail.startswith("no near tie: margins 4 and -4, noise ")
    (kept,) = reviewed(Judge(floor(0.01), Class.SAME), *wrong).mismatches
    assert kept.detail == ""
