"""A small worker in memory, in each of its phases, with the checklist of `slice.toml`."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from migration.check.model import Report
from migration.check.reading import Ready, read_subject
from migration.check.run import check
from migration.check.subject import Changed
from migration.phases.cleanup import CleanupPlan, plan_cleanup
from migration.phases.gate import GatePlan, plan_gate
from migration.phases.port import PortPlan, plan_port
from migration.proofs.record import ProofFile, record_cleanup, record_gate, record_port
from migration.recipe import Recipe, parse_recipe
from migration.recipe_checklist import PHASES, parse_checklist

from ..support import DictTree

HERE = Path(__file__).parent
TEXT = (HERE / "slice.toml").read_text(encoding="utf-8")
RECIPE = parse_recipe(TEXT, "slice.toml")
WORKER, HANDLER = RECIPE.source_file, RECIPE.target_file
TODAY = datetime.date(2026, 6, 30)
Files = Mapping[str, bytes]


def before() -> dict[str, bytes]:
    root = HERE / "golden"
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.py"))}


Phases = dict[str, tuple[dict[str, bytes], ProofFile]]


@lru_cache
def phases() -> Phases:
    return in_phases(RECIPE, before())


def in_phases(recipe: Recipe, start: Files) -> Phases:
    """The files and the proof of each phase, as the commands write them."""
    files = dict(start)
    found: Phases = {}
    for phase in PHASES:
        tree = DictTree(dict(files))
        if phase == "port":
            port = plan_port(recipe, tree)
            assert isinstance(port, PortPlan) and not port.left, port
            changes, proof = port.changes, record_port(port, tree)
        elif phase == "gate":
            gate = plan_gate(recipe, tree)
            assert isinstance(gate, GatePlan), gate
            changes, proof = gate.changes, record_gate(gate, tree)
        else:
            cleanup = plan_cleanup(recipe, tree)
            assert isinstance(cleanup, CleanupPlan), cleanup
            changes, proof = cleanup.changes, record_cleanup(cleanup, tree)
        files |= {change.path: change.after for change in changes if change.after is not None}
        found[phase] = (dict(files), proof)
    return found


def tree(phase: str) -> dict[str, bytes]:
    return dict(phases()[phase][0])


def report(
    files: Files,
    phase: str,
    *,
    text: str = TEXT,
    asked: bool = False,
    today: datetime.date = TODAY,
    changed: Changed | None = None,
    proof: ProofFile | None = None,
) -> Report:
    """The report on some files; `phase` is that of the proof, and is asked for where `asked`."""
    ready = read_subject(
        parse_recipe(text, "slice.toml"),
        parse_checklist(text, "slice.toml"),
        DictTree(files),
        today,
        phase=phase if asked else None,  # type: ignore[arg-type]
        proofs=[proof or phases()[phase][1]],
        changed=changed,
    )
    assert isinstance(ready, Ready), ready
    return check(ready.subject, ready.found_by)


def edited(files: Files, path: str, old: str, new: str) -> dict[str, bytes]:
    """The files with one place of one of them changed; the place must be there, once."""
    data = files[path].decode()
    assert data.count(old) == 1, (path, old, data.count(old))
    return {**files, path: data.replace(old, new).encode()}
