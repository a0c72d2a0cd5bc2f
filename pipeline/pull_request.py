"""One pull request from end to end: its branch, its checks, its page."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from migration.burndown.gitrun import open_git
from migration.code.tree import DiskTree
from pipeline.branches import Commit, changed_lines, commit_base, commit_stack, lines_at, publish
from pipeline.compared import Compared, compare, device
from pipeline.config import Config, Slice
from pipeline.page import Part, PullRequest, Size, markdown, report
from pipeline.running import Ran, migrate, pytest
from pipeline.scratch import Scratch, scratch, start
from pipeline.stack import Stack, before, pull_requests
from pipeline.stages import Stage
from reports import Report, to_json, write_report

Say = Callable[[str], None]


def pull_request(
    config: Config, root: Path, name: str, *, work_tree: bool, scale: str | None, say: Say
) -> tuple[Report, Path]:
    """Make the branches up to `name` ("5.2"), run its checks, write its page; the report, and where the page is."""
    began = time.monotonic()
    repository = open_git(root)
    begin = start(repository, root, work_tree=work_tree)
    number, _, phase = name.partition(".")
    one = config.slice(int(number))
    with scratch(repository, root) as place:
        say("the branches: from the class as it was before its first slice")
        base = _base(config, place, begin)
        stack = pull_requests(config, DiskTree(place.root), name)
        commits = [base, *commit_stack(repository, base, stack)]
        moved = publish(repository, commits)
        by_label = {commit.label: commit for commit in commits}
        own = [s for s in stack.stages if s.number == one.number and s.label.startswith(name)]
        parts = tuple(_part(root, one, place, stage, by_label[stage.label], say) for stage in own)
        first = next(s for s in stack.stages if s.number == one.number)
        compared = None
        if phase == "2" and config.shadow is not None:
            compared = _compared(config, one, place, by_label[first.label].parent, name, scale, say)
        found = PullRequest(
            name,
            parts,
            compared,
            _sizes(config, stack, one, place, base, parts),
            _codemod(stack, one),
            tuple(moved),
            time.monotonic() - began,
        )
        path = place.folder / f"{name}.md"
        write_report(path, markdown(found))
        write_report(path.with_suffix(".json"), to_json(report(found)))
    return report(found), path


def _base(config: Config, place: Scratch, begin: str) -> Commit:
    """The base commit, shown in the scratch tree."""
    place.show(begin)
    base = commit_base(place.repository, begin, before(config, DiskTree(place.root)))
    place.show(base.id)
    return base


def _part(root: Path, one: Slice, place: Scratch, stage: Stage, commit: Commit, say: Say) -> Part:
    """The checks of one commit, each on its files and no others."""
    place.show(commit.id)
    say(f"{stage.label}: {stage.subject.partition(' ')[2]}")
    suffix = stage.label.removeprefix(stage.label.rstrip("abcdefghijklmnopqrstuvwxyz"))
    at = f" ({suffix})" if suffix else ""
    tree = os.path.relpath(place.root, root)
    recipe = os.path.join(tree, one.path) if one.path.endswith(".toml") else one.path
    verify = _told(say, migrate(f"verify{at}", root, "verify", "--repo", tree))
    asked = ("check", recipe, "--phase", stage.phase, "--repo", tree, "--format", "markdown")
    check = _told(say, migrate(f"check{at}", root, *asked, "--base", commit.parent))
    paths = one.checklist.tests_of(stage.phase)
    tests = _told(say, pytest(f"tests{at}", place.root, paths)) if paths else None
    return Part(stage, commit, tuple(changed_lines(place.repository, commit)), verify, check, tests)


def _compared(
    config: Config, one: Slice, place: Scratch, legacy: str, name: str, scale: str | None, say: Say
) -> Compared:
    assert config.shadow is not None
    where = device()
    chosen = scale or (config.shadow.scale if where == "cpu" else "1")
    folder = place.folder / name
    folder.mkdir(exist_ok=True)
    say(f"{name}: {config.shadow.workload} back to back on {config.shadow.model} ({where}, scale {chosen})")
    found = compare(one.recipe, config.shadow, chosen, legacy, place.root, folder, where)
    for ran in found.rans:
        _told(say, ran)
    return found


def _told(say: Say, ran: Ran) -> Ran:
    say(f"  {ran.name}: {'holds' if ran.code == 0 else f'ended with {ran.code}'} ({ran.seconds:.0f} s)")
    return ran


def _sizes(
    config: Config, stack: Stack, one: Slice, place: Scratch, base: Commit, parts: Sequence[Part]
) -> tuple[Size, ...]:
    done = {config.worker: None} | {
        stage.recipe.target_file: None for stage in stack.stages if stage.number == one.number
    }
    commits = (base.id, parts[0].commit.parent, parts[-1].commit.id)
    return tuple(
        Size(path, *(lines_at(place.repository, commit, path) for commit in commits)) for path in done
    )


def _codemod(stack: Stack, one: Slice) -> tuple[tuple[str, float], ...]:
    spent: dict[str, float] = {}
    for stage in stack.stages:
        if stage.number == one.number:
            spent[stage.phase] = spent.get(stage.phase, 0.0) + stage.seconds
    return tuple(spent.items())
