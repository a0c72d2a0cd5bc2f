"""The documentation page lists every reason for which a method is refused."""

from __future__ import annotations

from pathlib import Path

from migration.errors import CATALOGUE


def test_every_method_refusal_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "migration.md").read_text(encoding="utf-8")
    rows = {
        f"| {code} | {entry.title} | {entry.way_out} |" for code, entry in CATALOGUE.items() if code < "MG100"
    }
    assert rows <= set(page.splitlines())
