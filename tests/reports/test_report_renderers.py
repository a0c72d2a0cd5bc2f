from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from junitparser import Error, Failure, JUnitXml
from rich.console import Console

from reports import (
    Check,
    Fact,
    Finding,
    Level,
    Report,
    ReportWriteError,
    Status,
    Table,
    Verdict,
    from_json,
    to_json,
    to_junit,
    to_markdown,
    write_report,
)
from reports.terminal import print_report
from tests.reports.samples import diverged, everything_differs, hostile


def finding(number: int, value: str = "18") -> Finding:
    where = (Fact("step", str(number)), Fact("sequence", "req-3"), Fact("field", "pages[2]"))
    return Finding(
        "page_table", Level.ERROR, f"values differ: {value}", where, "17", value, "look at the handler"
    )


def report(findings: int = 2, listed: int | None = None, value: str = "18") -> Report:
    kept = findings if listed is None else listed
    return Report(
        title="shadow compare",
        verdict=Verdict(Status.FAIL, 1, f"{findings} values differ"),
        facts=(Fact("model", "tiny"),),
        checks=(
            Check("logits", Status.PASS, 4096),
            Check("page_table", Status.FAIL, 33, f"{findings} differ"),
            Check("boundary", Status.SHORT, 0, "nothing compared"),
        ),
        findings=tuple(finding(i, value) for i in range(kept)),
        total_findings=findings,
        tables=(Table("Steps", ("step", "seconds"), (("0", "0.1"),)),),
        seconds=1.5,
    )


def shown(subject: Report, *, width: int = 120, **options: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    print_report(subject, console, first="First divergence", **options)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_json_round_trip_keeps_everything() -> None:
    assert from_json(to_json(report())) == report()


@pytest.mark.parametrize(
    "text", ["", "{}", '{"schema": "report/1"}', to_json(report()).replace("report/1", "x/9")]
)
def test_json_of_another_shape_is_refused_with_the_schema_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"schema|not a report"):
        from_json(text)


def test_junit_marks_failures_and_counts_a_check_that_saw_nothing_as_an_error() -> None:
    suites = JUnitXml.fromstring(to_junit(report()).encode())
    (suite,) = list(suites)
    results = {case.name: [type(r) for r in case.result] for case in suite}
    assert results == {"logits": [], "page_table": [Failure], "boundary": [Error], "verdict": [Failure]}
    assert (suite.tests, suite.failures, suite.errors) == (4, 2, 1)
    failure = next(case for case in suite if case.name == "page_table").result[0]
    assert "pages[2]" in failure.text and "req-3" in failure.text and "17" in failure.text


def test_junit_is_well_formed_whatever_the_values_are() -> None:
    xml = to_junit(report(value="\x1b[31m\x00 <&> ]]> \ud800"))
    assert "&lt;&amp;&gt;" in xml
    JUnitXml.fromstring(xml.encode())


def test_markdown_leads_with_the_verdict_and_escapes_table_cells() -> None:
    text = to_markdown(report(value="a|b\n`c` <d>"))
    assert text.startswith("## ❌ shadow compare: 2 values differ\n")
    assert "| actual | a\\|b \\`c\\` &lt;d> |" in text
    assert "| boundary | short | 0 | nothing compared |" in text


def test_markdown_says_how_many_findings_it_left_out() -> None:
    assert "… and 4990 more." in to_markdown(report(5000, listed=50))
    assert "more." not in to_markdown(report(2))


def test_terminal_shows_the_first_finding_with_both_values_and_every_count() -> None:
    text = shown(report())
    for part in (
        "2 values differ",
        "First divergence",
        "req-3",
        "pages[2]",
        "17",
        "18",
        "4,096",
        "nothing compared",
    ):
        assert part in text


def test_terminal_never_reads_values_as_markup() -> None:
    assert shown(report(1, value="[red]x[/red]")).count("[red]x[/red]") == 2


def test_terminal_stays_bounded_and_says_what_it_left_out() -> None:
    text = shown(report(5000, listed=50), max_rows=8)
    assert "8 of 4999 shown" in text
    assert len(text.splitlines()) < 60


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_terminal_takes_at_most_50_lines_when_everything_differs(width: int) -> None:
    text = shown(everything_differs(layers=8, steps=200, pages=500, width=3000), width=width)
    lines = text.splitlines()
    assert 30 <= len(lines) <= 50 and max(map(len, lines)) <= width
    assert lines[-1].startswith("… not whole here: ")
    wanted = ("999,999,999", "First divergence", "Also found (", "Checked (")
    for part in wanted[: 4 if width >= 80 else 2]:
        assert part in text, part


def test_terminal_gives_the_room_to_what_tells_most() -> None:
    text = shown(diverged())
    assert len(text.splitlines()) <= 50
    for part in ("KV content: layer by step", "compare the load of the two handlers", "trees/slice-5"):
        assert part in text
    listed = int(re.search(r"Also found \((\d+) of 4311 shown\)", text)[1])  # type: ignore[index]
    rows = [line for line in text.splitlines() if line.startswith(" kv ") and "b1-7" in line]
    assert len(rows) == listed >= 3


def test_terminal_shows_codes_that_would_drive_it_as_text() -> None:
    text = shown(hostile(), width=200)
    assert not re.search("[\x00\x1b\u202e\u200b\ud800]", text) and "\\x1b[31mred" in text
    text.encode("utf-8")


def test_markdown_fits_a_comment_and_shows_pictures_as_tables() -> None:
    text = to_markdown(everything_differs(width=3000))
    assert len(text) < 65_536 and "the rest does not fit" in text
    small = to_markdown(diverged())
    assert "### Logits error: relative L2" in small and "| 3 | ···" in small
    assert "| plan.load\\[0\\].pages | (17, 18, 19, 20) | (17, 18, 19) |" in small


def test_markdown_reads_no_value_as_link_image_or_tag() -> None:
    text = to_markdown(hostile())
    assert "![" not in text and "<script" not in text and "<img" not in text and "\x1b" not in text


@pytest.mark.parametrize("width", [80, 120, 200])
def test_terminal_shows_every_coordinate_of_further_findings_in_one_line_each(width: int) -> None:
    text = shown(report(6, value="#0123456789abcdef is not what it was before"), width=width)
    lines = [
        line for line in text.splitlines() if line.lstrip().startswith("page_table  ") and "req-3" in line
    ]
    assert len(lines) == 5
    assert all("pages[2]" in line and "17" in line and "#012345" in line for line in lines)
    assert max(map(len, lines)) <= width


def test_model_refuses_ragged_tables_and_counts_below_the_listed_findings() -> None:
    with pytest.raises(ValueError, match="cells"):
        Table("t", ("a", "b"), (("1",),))
    with pytest.raises(ValueError, match="total_findings"):
        report(1, listed=2)


def test_write_replaces_whole_files_and_names_the_path_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "report.json"
    write_report(path, "one")
    write_report(path, "two")
    assert path.read_text() == "two" and os.listdir(path.parent) == ["report.json"]
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportWriteError, match=r"cannot write the report .*file/x\.json"):
        write_report(tmp_path / "file" / "x.json", "three")


def test_reports_imports_neither_torch_nor_batchgen() -> None:
    others = "{'torch', 'batchgen', 'migration', 'shadow'}"
    modules = "reports, reports.terminal, reports.html, reports.schema, reports.binning"
    code = f"import sys, {modules}; print({others} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
