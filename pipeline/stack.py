"""The stack of all slices on the class as it was before them, and what main ought to be. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from migration.code.tree import OverlayTree, Tree
from migration.ledger.change import FileChange
from migration.proofs.where import proof_path
from migration.recipe_checklist import PHASES
from pipeline.config import FILE, Config
from pipeline.errors import SHORT, PipelineError
from pipeline.stages import Stage, after, label, stages

BASE = "base"


@dataclass(frozen=True)
class Stack:
    """`base` makes the tree into the one before the first slice; the stages follow it in order."""

    base: tuple[FileChange, ...]
    stages: tuple[Stage, ...]


def kept(config: Config, tree: Tree) -> bytes:
    """The class's file before its first slice: the kept one, or while there is no slice yet the file itself."""
    found = tree.read(config.kept)
    if found is not None:
        return found
    proofs = [proof_path(one.recipe.name) for one in config.slices]
    landed = next((path for path in proofs if tree.read(path) is not None), None)
    found = tree.read(config.worker)
    if landed is not None or found is None:
        why = f"there is {landed}" if landed else f"there is no {config.worker} either"
        raise PipelineError(
            f"{FILE}: kept: {config.kept} does not exist, and {why}: take {config.worker} as it was before its "
            "first slice from git",
            SHORT,
        )
    return found


def before(config: Config, tree: Tree) -> tuple[FileChange, ...]:
    """What makes `tree` the one without any slice: the kept worker, no handlers, no proofs."""
    files: dict[str, bytes | None] = {config.worker: kept(config, tree)}
    for one in config.slices:
        gone = (one.recipe.target_file, *one.recipe.generated, proof_path(one.recipe.name))
        files.update(dict.fromkeys(gone))
    return _changes(tree, files)


def pull_requests(config: Config, tree: Tree, last: str) -> Stack:
    """The stack from the first slice to the pull request `last` ("5.2"), all parts of it included."""
    numbers = [one.number for one in config.slices]
    number, _, phase = last.partition(".")
    config.slice(int(number))
    wanted = PHASES[: int(phase)]
    base = before(config, tree)
    tree = OverlayTree(tree, {change.path: change.after for change in base})
    done: list[Stage] = []
    for one in config.slices[: numbers.index(int(number)) + 1]:
        phases = wanted if one.number == int(number) else PHASES
        done += stages(one, phases, after(tree, done))
    return Stack(base, tuple(done))


def landing(config: Config, tree: Tree) -> tuple[FileChange, ...]:
    """What is to be written so that the tree is what the configuration says of main; empty where it is."""
    base = before(config, tree)
    files = {change.path: change.after for change in base}
    if any(one.main for one in config.slices):
        files[config.kept] = kept(config, tree)
    start = OverlayTree(tree, dict(files))
    done: list[Stage] = []
    for one in config.slices:
        done += stages(one, one.phases, after(start, done))
    files.update({change.path: change.after for stage in done for change in stage.changes})
    return _changes(tree, files)


def golden(config: Config, tree: Tree) -> tuple[FileChange, ...]:
    """What is to be written so that the golden folders hold what cleanup leaves: the class's file, the handler."""
    wanted = {label(one.number, PHASES[-1]): one.recipe for one in config.slices if one.golden}
    if not wanted:
        raise PipelineError(f"{FILE}: no slice has `golden = true`", SHORT)
    files: dict[str, bytes | None] = {}
    stack = pull_requests(config, tree, list(wanted)[-1])
    base = OverlayTree(tree, {change.path: change.after for change in stack.base})
    for count, stage in enumerate(stack.stages, start=1):
        if stage.label in wanted:
            left = after(base, stack.stages[:count])
            for path in (config.worker, wanted[stage.label].target_file):
                # Not `.py`: what it mentions is no use of it.
                files[f"{config.golden}/{stage.label}/{path}.txt"] = left.read(path)
    return _changes(tree, files)


def _changes(tree: Tree, files: Mapping[str, bytes | None]) -> tuple[FileChange, ...]:
    """Those that differ, by their paths."""
    found = (FileChange(path, tree.read(path), data) for path, data in sorted(files.items()))
    return tuple(change for change in found if change.before != change.after)
