"""The documentation page lists every reason for which a method is refused."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from migration.errors import CATALOGUE
from migration.recipe_check import TABLES


def test_every_method_refusal_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "migration.md").read_text(encoding="utf-8")
    rows = {
        f"| {code} | {entry.title} | {entry.way_out} |" for code, entry in CATALOGUE.items() if code < "MG100"
    }
    assert rows <= set(page.splitlines())


RECIPE_PAGE = (Path(__file__).parents[2] / "docs" / "recipe.md").read_text(encoding="utf-8")


def test_every_entry_of_a_recipe_is_documented_and_no_other():
    tables = {name for name in TABLES[""] if name.rstrip("?") in TABLES}
    known = {
        f"`{table}.{key.rstrip('?')}`" + " ?" * key.endswith("?") if table else f"`{key}`"
        for table, keys in TABLES.items()
        for key in keys
        if table or key not in tables
    }
    assert known == {row[1] for row in re.finditer(r"^\| (`[\w.]+`(?: \?)?) \|", RECIPE_PAGE, re.MULTILINE)}


def test_the_examples_of_a_recipe_are_toml():
    blocks = re.findall(r"```toml\n(.*?)```", RECIPE_PAGE, re.DOTALL)
    assert len(blocks) > 3
    for block in blocks:
        tomllib.loads(block)
