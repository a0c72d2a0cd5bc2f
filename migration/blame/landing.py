"""Which way of committing a port keeps most of its blame: all are built, measured, and the best one is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from migration.blame.kept import kept
from migration.blame.objects import Built, base_of, build
from migration.blame.ways import Moved, NoWay, Way, moved_lines, ways
from migration.burndown.gitrun import GitError, Repository
from migration.ledger.change import FileChange
from migration.phases.port import PortPlan

#: What is asked of git: as it stands, with changes of white space passed over, and with the edit ignored as well.
PLAIN, SPACES = ("-C", "-C"), ("-w", "-C", "-C")


@dataclass(frozen=True)
class Measured:
    """Of `Landing.lines` moved lines so many are blamed on earlier commits; `ignoring` is None without an edit."""

    built: Built
    plain: int
    spaces: int
    ignoring: int | None

    @property
    def name(self) -> str:
        return self.built.way.name


@dataclass(frozen=True)
class Landing:
    """`best` is among `measured`: most lines kept by `-C -C`, then by `-w -C -C`, then the fewest commits."""

    base: str
    lines: int
    measured: tuple[Measured, ...]
    closed: tuple[NoWay, ...]
    best: Measured


def prepare(
    repository: Repository, plan: PortPlan, worker: bytes, changes: Sequence[FileChange], wanted: str
) -> Landing:
    """Build and measure every way; `wanted` is the name of one, or "best". Only objects are written.

    GitError where git refuses, or the wanted way is not open.
    """
    base = base_of(repository, [plan.recipe.source_file, *(change.path for change in changes)])
    moved = moved_lines(plan)
    found = ways(plan, worker, changes)
    closed = tuple(way for way in found if isinstance(way, NoWay))
    measured = tuple(_measure(repository, way, base, moved) for way in found if isinstance(way, Way))
    trees = {one.built.tree for one in measured}
    if len(trees) != 1:
        raise GitError("the ways of committing do not end in the same tree")
    if wanted == "best":
        best = choose(measured)
    else:
        why = next((way.why for way in closed if way.name == wanted), "")
        named = next((one for one in measured if one.name == wanted), None)
        if named is None:
            raise GitError(f"the way {wanted} is not open: {why}")
        best = named
    return Landing(base, len(moved.lines), measured, closed, best)


def choose(measured: Sequence[Measured]) -> Measured:
    """The way that keeps most; of equal ones that with the fewest commits."""
    return max(measured, key=lambda one: (one.plain, one.spaces, -len(one.built.commits)))


def _measure(repository: Repository, way: Way, base: str, moved: Moved) -> Measured:
    built = build(repository, way, base)
    path = repository.prefix + moved.path

    def ask(*options: str) -> int:
        return kept(repository, built.tip, path, moved.lines, built.commits, options)

    ignoring = None if built.edit is None else ask(*SPACES, "--ignore-rev", built.edit)
    return Measured(built, ask(*PLAIN), ask(*SPACES), ignoring)
