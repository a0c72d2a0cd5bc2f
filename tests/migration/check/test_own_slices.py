"""Main as it is committed: the checklist of each slice that it has finds nothing."""

from __future__ import annotations

import datetime

import pytest

from migration.check.reading import Ready, read_subject
from migration.check.run import check
from migration.code.tree import DiskTree
from migration.proofs.store import known_proofs
from migration.recipe_checklist import parse_checklist
from migration.slices import load_recipe, recipe_path
from pipeline.config import load_config

from .test_command import ROOT

SLICES = [one.recipe.name for one in load_config(ROOT).slices if one.main]


@pytest.mark.parametrize("name", SLICES)
def test_the_checklist_of_a_slice_finds_nothing_on_main(name: str) -> None:
    checklist = parse_checklist(recipe_path(name).read_text(), f"{name}.toml")
    # How old the flag is depends on the day: `migrate check` says it, a test must not.
    today = checklist.flag.introduced if checklist.flag else datetime.date(2026, 1, 1)
    ready = read_subject(load_recipe(name), checklist, DiskTree(ROOT), today, proofs=known_proofs(ROOT))
    assert isinstance(ready, Ready), ready
    found = check(ready.subject, ready.found_by)
    assert found.looked and not found.errors
    assert [f"{one.code} {one.message}" for one in found.findings] == []
