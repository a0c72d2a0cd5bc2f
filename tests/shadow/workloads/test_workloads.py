"""Workloads as values: the ladder, its scale, the files, what the report says of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from reports import Report, Status, Verdict
from shadow.workloads import LADDER, NAMES, Batch, Request, Scale, WorkloadError, workload, write_batches
from shadow.workloads.realised import Yield
from shadow.workloads.requests import URL
from shadow.workloads.situations import REACHABLE, SITUATIONS
from shadow.workloads.verdict import judged

PASSED = Report("shadow compare", Verdict(Status.PASS, 0, "Equal"))


def lines(path: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


@pytest.mark.parametrize(
    ("name", "prompts", "cap"),
    [("L1", 32, 512), ("L2-2048", 128, 2048), ("L2-4096", 128, 4096), ("L3", 2048, 10240)],
)
def test_the_ladder_is_the_one_of_the_validation(name: str, prompts: int, cap: int) -> None:
    (batch,) = workload([name]).batches
    assert (batch.prompts, batch.cap) == (prompts, cap)
    assert {request.max_tokens for request in batch.requests} == {cap}
    assert all(request.held for request in batch.requests), "nothing but the cap ends a row"
    assert workload([name]).environment == {"BATCHGEN_REP_DETECTION": "0"}


def test_prompts_are_whole_pages_and_one_more_and_one_less_and_say_so() -> None:
    (batch,) = workload(["L1"], page_size=16).batches
    off = Counter(len(r.prompt) % 16 for r in batch.requests)
    assert min(off[0], off[1], off[15]) >= 8
    for request in batch.requests:
        said = request.name.rsplit("-", 1)[-1] if not request.name.endswith("-1") else request.name[-8:]
        if request.name.endswith("pages"):
            assert len(request.prompt) == 16 * int(said.removesuffix("pages"))
        if request.name.endswith("pages+1"):
            assert len(request.prompt) % 16 == 1
        if request.name.endswith("pages-1"):
            assert len(request.prompt) % 16 == 15


@pytest.mark.parametrize(
    ("text", "caps", "prompts"),
    [("caps/16,prompts/4", 16, 4), ("prompts/2", 1, 2), ("caps/3", 3, 1), ("1", 1, 1)],
)
def test_a_scale_divides_caps_and_prompts(text: str, caps: int, prompts: int) -> None:
    scale = Scale.parse(text)
    assert scale == Scale(caps, prompts)
    (batch,) = workload(["L2-2048"], scale).batches
    assert (batch.prompts, batch.cap) == (128 // prompts, 2048 // caps)


@pytest.mark.parametrize(
    "text", ["", "2", "caps/0", "caps*2", "caps/2,caps/3", "rows/2", "caps/2,", "prompts/-1"]
)
def test_what_is_no_scale_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a scale such as caps/16,prompts/4"):
        Scale.parse(text)


def test_the_same_workload_gives_the_same_files_byte_for_byte(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    names = ["L1", "L2-2048"]
    ours, theirs = (write_batches(workload(names).batches, folder) for folder in (first, second))
    assert [Path(path).read_bytes() for path in ours] == [Path(path).read_bytes() for path in theirs]
    other = write_batches(workload(names, seed=1).batches, second)
    assert Path(ours[0]).read_bytes() != Path(other[0]).read_bytes()
    line = lines(ours[0])[0]
    assert line["url"] == URL and line["body"]["ignore_eos"] is True  # type: ignore[index]


def test_several_workloads_are_batches_in_order_and_twice_the_same_has_two_sets_of_names() -> None:
    whole = workload(["L1", "L2-2048", "L1"], Scale(64, 16))
    assert [batch.name for batch in whole.batches] == ["L1", "L2-2048", "L1-again2"]
    names = [request.name for batch in whole.batches for request in batch.requests]
    assert len(set(names)) == len(names)


def test_workloads_that_want_different_engines_are_refused_together() -> None:
    with pytest.raises(WorkloadError, match="BATCHGEN_REP_DETECTION: run them one by one"):
        workload(["L1", "boundaries"])


@pytest.mark.parametrize("names", [["L4"], [""], ["l1"], ["L1", "L9"]])
def test_an_unknown_workload_is_refused_with_those_there_are(names: list[str]) -> None:
    with pytest.raises(WorkloadError, match=f"there are {NAMES[0]}, "):
        workload(names)


def test_only_the_ladder_can_be_scaled() -> None:
    with pytest.raises(WorkloadError, match="only L1, L2-2048, L2-4096, L3 can be scaled"):
        workload(["mixed"], Scale(2))


def test_two_requests_of_one_name_are_no_batch() -> None:
    with pytest.raises(ValueError, match="two requests have one name"):
        Batch("twice", (Request("a", (1,), 2), Request("a", (2,), 2)))


def caps(full: int, rows: int = 10) -> tuple[Yield, ...]:
    return (Yield("L1", rows, full, 512 * full, 512),)


@pytest.mark.parametrize(("full", "code"), [(10, 0), (9, 0), (8, 3), (0, 3)])
def test_nine_rows_in_ten_must_reach_the_cap(full: int, code: int) -> None:
    report = judged(PASSED, workload(["L1"]), caps(full), {})
    assert report.verdict.exit_code == code
    assert report.tables[-1].rows == (("L1", f"{512 * full:,}", "512", f"{full} of 10"),)
    if code:
        assert f"{full} of 10 rows of L1" in report.verdict.headline


def test_a_batch_that_never_ran_is_short() -> None:
    both = (*caps(10), Yield("L2-2048", 128, 0, 0, 2048))
    assert judged(PASSED, workload(["L1", "L2-2048"]), both, {}).verdict.exit_code == 3


def test_a_run_that_was_to_end_early_owes_nothing_but_says_what_it_gave() -> None:
    report = judged(PASSED, workload(["L1"]), caps(0), {}, cut_short=True)
    assert report.verdict.exit_code == 0 and report.tables[-1].title == "Realised tokens"


def test_a_divergence_stays_one_when_the_workload_is_short() -> None:
    diverged = Report("shadow compare", Verdict(Status.FAIL, 1, "Diverged"))
    assert judged(diverged, workload(["L1"]), caps(0), {}).verdict == diverged.verdict


@pytest.mark.parametrize("missing", sorted(REACHABLE))
def test_every_situation_that_is_required_and_not_reached_is_short(missing: str) -> None:
    counts = dict.fromkeys(REACHABLE - {missing}, 1)
    report = judged(PASSED, workload(["boundaries"]), (), counts)
    assert report.verdict.exit_code == 3 and missing in report.verdict.headline
    (row,) = [row for row in report.tables[-1].rows if row[0] == missing]
    assert row[2] == "SHORT" and "reached by: " in row[3]
    assert judged(PASSED, workload(["boundaries"]), (), {**counts, missing: 1}).verdict.exit_code == 0


def test_what_does_not_apply_is_in_the_table_with_its_reason() -> None:
    table = judged(PASSED, workload(["boundaries"]), (), {}).tables[-1]
    assert [row[0] for row in table.rows] == [situation.name for situation in SITUATIONS]
    assert all(s.not_here or s.reached_by for s in SITUATIONS)
    assert {row[0] for row in table.rows if row[2] == "does not apply"} == {
        situation.name for situation in SITUATIONS
    } - REACHABLE


def test_every_level_has_a_name() -> None:
    assert set(LADDER) < set(NAMES)
