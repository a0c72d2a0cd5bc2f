"""The shadow comparison of the engine's own worker with its KV gates: both L2 levels, small, back to back."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from migration.code.tree import DiskTree
from pipeline.compared import CLEANUP, Compared, compare
from pipeline.config import load_config
from pipeline.stack import pull_requests
from reports import from_json
from shadow.experiment import Verdict

ROOT = Path(__file__).resolve().parents[2]
CONFIG = load_config(ROOT)
KV = CONFIG.slice(5).recipe


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(the engine before its first slice, the engine with the KV gates)"""
    stack = pull_requests(CONFIG, DiskTree(ROOT), "5.2")
    found = []
    for name, changes in (("before", stack.base), ("gated", [c for s in stack.stages for c in s.changes])):
        tree = tmp_path_factory.mktemp(name)
        source = found[0] if found else ROOT
        shutil.copytree(source / "batchgen", tree / "batchgen", ignore=shutil.ignore_patterns("__pycache__"))
        for change in changes:
            path = tree / change.path
            path.parent.mkdir(parents=True, exist_ok=True)
            if change.after is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(change.after)
        found.append(tree)
    return found[0], found[1]


def compared(before: Path, gated: Path, folder: Path) -> Compared:
    folder.mkdir()
    assert CONFIG.shadow is not None
    watched = dataclasses.replace(CONFIG.shadow, alone="")  # the copies have no tests, where that module is
    return compare(KV, watched, "caps/64,prompts/32", str(before), gated, folder, "cpu")


@pytest.mark.slow
def test_calls_and_clean_ups_are_counted_and_equal(trees: tuple[Path, Path], tmp_path: Path) -> None:
    found = compared(*trees, tmp_path / "reports")
    assert found.code == 0, [ran.output for ran in found.rans]
    (gate,) = found.gates
    assert gate.gate == "BATCHGEN_WORKER_KV" and dict(gate.methods)["_get_sequence_token_budget"].compared > 0
    assert found.calls == sum(count.compared for _, count in gate.methods)
    report = from_json((tmp_path / "reports/compare.json").read_bytes())
    (said,) = [fact.value for fact in report.facts if fact.name == "candidate gates"]
    assert said.startswith(f"shadow: verdict 0 (equal): {gate.gate}: {found.calls} of {found.calls} calls")
    assert dict(found.cleanup).keys() == set(CLEANUP) and all(count > 0 for _, count in found.cleanup)


@pytest.mark.slow
def test_a_handler_that_answers_otherwise_is_found_by_the_gate(
    trees: tuple[Path, Path], tmp_path: Path
) -> None:
    """In compare mode the run itself goes on with the legacy result: only the gate tells."""
    before, gated = trees
    broken = tmp_path / "broken"
    shutil.copytree(gated, broken, ignore=shutil.ignore_patterns("__pycache__"))
    handler = broken / KV.target_file
    text = handler.read_text()
    head, mark, rest = text.partition("    def _get_sequence_token_budget(")
    assert mark and "return " in rest
    handler.write_text(head + mark + rest.replace("return ", "return 1 + ", 1))
    found = compared(before, broken, tmp_path / "reports")
    compare_mode, native = found.rans
    assert (compare_mode.code, native.code) == (0, 1)
    assert [gate.verdict for gate in found.gates] == [Verdict.DIVERGED] and found.code == 1
