"""The ways in which a port can be committed. Pure: files in, steps out.

A line keeps its author where blame can carry it from the handler to the class. `git blame -C -C` carries copied
lines only in runs of 40 letters and digits, and a port edits every few lines; a rename it follows line by line.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migration.code.source import Source
from migration.code.structure import outline
from migration.ledger.change import FileChange
from migration.move.cut import select
from migration.move.moving import moved_name
from migration.phases.port import PortPlan


@dataclass(frozen=True)
class Step:
    """One commit: what it says, and the files that differ from the commit before it (None: deleted)."""

    message: str
    files: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Way:
    """`steps` follow each other; with `merge` they are a side line, which that commit joins to where it began.

    `edit` is the step that changes lines which an earlier one moved, and that `--ignore-rev` may be given; None
    where one commit does both: blame would then guess among lines that were never the same.
    """

    name: str
    steps: tuple[Step, ...]
    merge: Step | None
    edit: int | None


@dataclass(frozen=True)
class NoWay:
    """A way that is not open to this port, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class Moved:
    """`lines` of the handler (1-based) are those of the methods that this port copies."""

    path: str
    lines: frozenset[int]


def moved_lines(plan: PortPlan) -> Moved:
    """Where the methods of this port are in the handler that it writes."""
    recipe = plan.recipe
    names = {d.moved_name for d in plan.cut.proof.details if d.name in plan.methods}
    shape = outline(Source(recipe.target_file, _handler(plan)), recipe.handler_class)
    lines = (range(m.block_start, m.block_end + 1) for m in shape.methods if m.name in names)
    return Moved(recipe.target_file, frozenset(line for block in lines for line in block))


def ways(plan: PortPlan, worker: bytes, changes: Sequence[FileChange]) -> tuple[Way | NoWay, ...]:
    """One commit; a copy as it stands and its edit; the class's file renamed, cut down and merged back."""
    recipe = plan.recipe
    what = f"{len(plan.methods)} methods of {recipe.source_class}"
    target = f"{recipe.handler_class} in {recipe.target_file}"
    part = f", part {plan.part}" if plan.part else ""
    all_files = tuple((change.path, change.after) for change in changes)
    port = f"Port {recipe.name}{part}: {what} are copied to {recipe.handler_class}\n\nNothing is wired yet."
    one = Way("one", (Step(port, all_files),), None, None)
    return (
        one,
        _move(plan, worker, f"Copy {what} to {target} as they stand", port, all_files),
        _rename(plan, worker, port, all_files),
    )


def _move(
    plan: PortPlan, worker: bytes, copy: str, port: str, all_files: tuple[tuple[str, bytes | None], ...]
) -> Way | NoWay:
    text = as_they_stand(plan, worker)
    try:
        ast.parse(text)
    except SyntaxError:
        return NoWay(
            "move", "the class is indented in another way than its handler: the copy would not parse"
        )
    return Way("move", (Step(copy, ((plan.recipe.target_file, text),)), Step(port, all_files)), None, 1)


def _rename(plan: PortPlan, worker: bytes, port: str, all_files: tuple[tuple[str, bytes | None], ...]) -> Way:
    source, target = plan.recipe.source_file, plan.recipe.target_file
    steps = []
    if dict(_before(plan)).get(target) is not None:
        # git takes a file for a renamed one only where there was none of its name.
        steps.append(Step(f"Make room for {target} on a side line", ((target, None),)))
    steps += [
        Step(
            f"Rename {source} to {target} on a side line\n\n"
            "Not to be built: the merge that follows has both files. Through it `git blame` follows the moved lines.",
            ((source, None), (target, worker)),
        ),
        Step(f"Cut {target} down to {plan.recipe.handler_class}", ((target, _handler(plan)),)),
    ]
    return Way("rename", tuple(steps), Step(port, all_files), len(steps) - 1)


def as_they_stand(plan: PortPlan, worker: bytes) -> bytes:
    """The handler of the port with each new method as it stands in the class, its head and indentation too."""
    recipe = plan.recipe
    source = Source(recipe.source_file, worker)
    names = {d.moved_name for d in plan.cut.proof.details if d.name in plan.methods}
    chosen = select(outline(source, recipe.source_class), plan.cut.recipe)
    originals: Mapping[str, Sequence[bytes]] = {
        moved_name(m, recipe.source_class): source.lines[m.block_start - 1 : m.block_end] for m in chosen
    }
    handler = Source(recipe.target_file, _handler(plan))
    lines = list(handler.lines)
    for method in reversed(outline(handler, recipe.handler_class).methods):
        if method.name in names:
            lines[method.block_start - 1 : method.block_end] = originals[method.name]
    return b"".join(lines)


def _handler(plan: PortPlan) -> bytes:
    found = next(change.after for change in plan.changes if change.path == plan.recipe.target_file)
    assert found is not None
    return found


def _before(plan: PortPlan) -> list[tuple[str, bytes | None]]:
    return [(change.path, change.before) for change in plan.changes]
