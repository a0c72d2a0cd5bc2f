"""The HTML report as text: bounds, and what is in it whatever the report holds. No browser needed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from reports import Report, Status, Verdict
from reports.html import MAX_BYTES, to_html
from reports.html.limits import Limits, within
from reports.html.scale import scale
from tests.reports.conftest import unavailable
from tests.reports.samples import HOSTILE, diverged, equal, everything_differs, hostile, pictures


def size(report: Report) -> int:
    return len(to_html(report).encode())


def test_a_long_run_of_a_large_model_stays_far_below_the_limit() -> None:
    assert size(diverged(layers=60, steps=10_000, pages=100_000, sequences=5000)) < 200_000
    assert size(equal()) < 40_000


def test_a_report_of_which_everything_is_too_large_stays_below_the_limit() -> None:
    page = to_html(everything_differs())
    assert len(page.encode()) < MAX_BYTES
    assert "999,999,999" in page and "left out" in page and "20,0" in page


def test_a_page_over_the_limit_is_made_anew_with_less() -> None:
    bidi = "\u202e" * 4000
    report = replace(hostile(bidi), findings=hostile(bidi).findings * 25, total_findings=50)
    assert len(to_html(report).encode()) < MAX_BYTES


@pytest.mark.parametrize("make", [diverged, equal, hostile])
def test_the_page_names_nothing_outside_itself(make: type) -> None:
    page = to_html(make())
    outside = re.sub(r"https?://example\.invalid/i\.png", "", page)
    assert not re.search(
        r"https?:|\bsrc=(?!x onerror)|url\((?!#hatch)|@import|<link (?!rel=\"icon\" href=\"data:,)", outside
    )


def test_hostile_text_opens_no_tag_and_holds_no_hidden_character() -> None:
    page = to_html(hostile())
    assert page.count("<script") == 1 and "<img" not in page and "<b>bold" not in page
    assert not re.search("[\x00\x1b\u202e\ud800\u200b]", page)


def test_every_verdict_has_its_word_beside_its_colour() -> None:
    for status, word in zip(Status, ("Pass", "Fail", "No verdict", "Too little seen"), strict=True):
        page = to_html(Report("t", Verdict(status, 0, "headline")))
        assert f'class="verdict {status.value}"' in page and f"</svg>{word}</span>" in page.replace("\n", "")


def test_limits_count_what_they_leave_out() -> None:
    limits = Limits(text=10, first=20, findings=3, rows=1, columns=1, tables=1, pictures=1, named=2)
    report = everything_differs(width=100)
    short = within(report, limits)
    assert len(short.findings) == 3 and short.total_findings == report.total_findings
    assert short.tables[0].title.endswith("(1 of 40 columns) (1 of 300 rows)") and len(short.tables) == 1
    assert [fact.value for fact in short.facts[2:]] == [
        "98 more",
        f"{3 + len(report.pictures) - 1} more tables and pictures",
    ]
    first, second = short.findings[:2]
    assert (
        first.actual == "v" * 20 + "… (100 characters)" and second.actual == "v" * 10 + "… (100 characters)"
    )


def test_checks_that_did_not_pass_are_listed_before_those_that_did() -> None:
    limits = Limits(text=99, first=99, findings=3, rows=1, columns=1, tables=1, pictures=1, named=2)
    assert [check.name for check in within(diverged(), limits).checks] == ["kv", "boundary"]


@pytest.mark.parametrize(
    ("values", "logarithmic"), [([0.0], True), ([], False), ([-3.0, 9.0], False), ([1e-300, 1e300], True)]
)
def test_an_axis_holds_its_values_and_has_few_ticks(values: list[float], logarithmic: bool) -> None:
    axis = scale(values, 10, 200, logarithmic=logarithmic)
    assert 2 <= len(axis.ticks) <= 8
    assert all(10 <= axis.at(value) <= 200 for value in (*values, *axis.ticks))
    assert axis.at(0.0) >= axis.at(max(values, default=1.0))


@pytest.mark.parametrize(("required", "outcome"), [("", "Skipped"), ("1", "Failed")])
def test_a_browser_that_is_required_and_not_there_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, required: str, outcome: str
) -> None:
    monkeypatch.setenv("REQUIRE_BROWSER", required)
    try:
        unavailable("no browser")
    except BaseException as error:  # a skip that got through would only skip this test
        assert type(error).__name__ == outcome
    else:
        pytest.fail("it went on")


def test_pictures_of_nothing_are_drawn_too() -> None:
    from reports.binning import heat_map, page_map, series, side_by_side
    from reports.pictures import Bars

    empty = (
        heat_map("t", "v", ("y", 0), ("x", 0), {}),
        series("t", "x", "y", {}),
        series("t", "x", "y", {"a": []}, logarithmic=True),
        page_map("t", 0, {"now": {}}),
        side_by_side("t", ("a", "b"), []),
        Bars("t", "s", (), ()),
    )
    assert to_html(replace(equal(), pictures=empty)).count("<figure") == 6
    assert len(pictures()) == 5 and HOSTILE
