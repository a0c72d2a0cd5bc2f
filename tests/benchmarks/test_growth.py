"""The growth curves at their smallest: what they write can be read, and says how time grows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.growth import Curve, main


@pytest.mark.slow
def test_curves_have_points_and_a_ratio_that_follows_from_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bench" / "growth.json"
    assert main(["--quick", "--output", str(file)]) == 0
    found = json.loads(file.read_text())
    assert (found["schema"], found["quick"]) == ("growth/1", True)
    assert {(c["name"], c["unit"], len(c["points"])) for c in found["curves"]} == {
        ("port", "lines", 3),
        ("compare, equal", "rows", 3),
        ("compare, all rows differ", "rows", 3),
        ("replay", "plans", 3),
    }
    for curve in found["curves"]:
        _, middle, largest = (point["microseconds_a_unit"] for point in curve["points"])
        assert min(middle, largest) > 0
        assert curve["ratio"] == pytest.approx(largest / middle)
    assert "not judged" in capsys.readouterr().out


def test_time_that_grows_with_the_square_misses_the_bar_of_what_is_linear() -> None:
    linear, square = (Curve("", "plans", {n: n**power for n in (10, 100, 1000)}, 1.5) for power in (1, 2))
    assert linear.as_json()["holds"] and linear.ratio == 1
    assert not square.as_json()["holds"] and square.ratio == pytest.approx(10)
