"""The rules of every slice on the golden workers: nothing alarms but the one habit that two of them are about."""

from __future__ import annotations

import pytest

from migration.check.reading import Ready, read_subject
from migration.check.run import check
from migration.recipe_checklist import Checklist, Flag

from ..golden_cases import GOLDEN, recipe_of
from ..support import DictTree
from .support import TODAY, in_phases

CASES = sorted(path.parent.name for path in GOLDEN.glob("*/after"))


@pytest.mark.parametrize("case", CASES)
def test_an_honest_worker_raises_no_alarm_in_any_phase(case: str):
    root = GOLDEN / case / "before"
    files = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    recipe = recipe_of(case)
    checklist = Checklist("slice.toml", flag=Flag("somebody", TODAY))
    for phase, (there, proof) in in_phases(recipe, files).items():
        ready = read_subject(recipe, checklist, DictTree(there), TODAY, proofs=[proof])
        assert isinstance(ready, Ready) and ready.subject.phase == phase
        found = check(ready.subject, ready.found_by)
        # They ask with hasattr for what the Protocol of a handle may lack: that is what these cases are about.
        allowed = {"MG618"} if case in ("expressions", "given") else set()
        assert {finding.code for finding in found.findings} == allowed, found.findings
        assert found.looked
