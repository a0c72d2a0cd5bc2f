"""The published JSON shape: up to date, and true of what is written."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from reports import from_json, to_json
from reports.schema import json_schema, published
from tests.reports.samples import diverged, equal, everything_differs, hostile

SCHEMA_FILE = Path(__file__).resolve().parents[2] / "docs" / "report.schema.json"


def test_the_published_schema_is_the_one_of_the_model() -> None:
    wanted = "python -m reports.schema > docs/report.schema.json"
    assert SCHEMA_FILE.read_text(encoding="utf-8") == published(), f"run: {wanted}"
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("make", [diverged, equal, hostile, lambda: everything_differs(width=10)])
def test_reports_are_valid_and_come_back_as_they_were(make: type) -> None:
    text = to_json(make())
    text.encode("utf-8")
    jsonschema.Draft202012Validator(json_schema()).validate(json.loads(text))
    assert to_json(from_json(text)) == text


def test_every_picture_comes_back_as_it_was() -> None:
    report = diverged()
    assert from_json(to_json(report)) == report
    assert {type(picture).__name__ for picture in report.pictures} == {
        "HeatMap",
        "Series",
        "PageMap",
        "SideBySide",
        "Bars",
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"report/1"', '"report/0"'),
        ('"heat_map"', '"pie"'),
        ('"exit_code": 1', '"exit_code": "1"'),
        ('"per_bin": 1', '"per_bin": 0'),
    ],
)
def test_what_is_no_report_is_refused_on_reading(old: str, new: str) -> None:
    text = to_json(diverged())
    assert old in text
    with pytest.raises(ValueError, match="not a report of schema report/1"):
        from_json(text.replace(old, new))
