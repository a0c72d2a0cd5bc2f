"""The history as rows: what each commit left of the monolith, and what it had outside of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from migration.burndown.gitrun import GitError
from migration.burndown.history import Commit
from migration.burndown.measure import ClassSize, HandlerSize, Measurer, Unparsed, measure_handler

#: At most so many rows are printed, and so many points drawn.
ROWS, POINTS = 50, 240

Item = TypeVar("Item")


@dataclass(frozen=True)
class Row:
    """One commit. `monolith` is None where the file was not there; `faults` are files that could not be read."""

    commit: Commit
    monolith: ClassSize | None
    handler_lines: int
    protocols: int
    width: int
    faults: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Everything that was there could be measured."""
        return not self.faults


def make_rows(
    commits: Sequence[Commit],
    monolith: str,
    class_name: str,
    handlers: Sequence[str],
    read: Callable[[str], bytes],
    progress: Callable[[int], None],
) -> tuple[Row, ...]:
    """One row a commit, in their order. `read` gives the bytes of a blob; each is measured once."""
    measurer = Measurer(class_name)
    sizes: dict[str, ClassSize | Unparsed] = {}
    modules: dict[str, HandlerSize | Unparsed] = {}
    rows = []
    for number, commit in enumerate(commits, 1):
        faults: list[str] = []
        found: ClassSize | None = None
        if identity := commit.blob(monolith):
            if identity not in sizes:
                sizes[identity] = _measured(read, identity, measurer.measure)
            size = sizes[identity]
            if isinstance(size, Unparsed):
                faults.append(f"{monolith}: {size.why}")
            else:
                found = size
        parts = []
        for path in handlers:
            if identity := commit.blob(path):
                if identity not in modules:
                    modules[identity] = _measured(read, identity, measure_handler)
                part = modules[identity]
                if isinstance(part, Unparsed):
                    faults.append(f"{path}: {part.why}")
                else:
                    parts.append(part)
        lines, protocols, width = (
            sum(getattr(part, name) for part in parts) for name in ("lines", "protocols", "width")
        )
        rows.append(Row(commit, found, lines, protocols, width, tuple(faults)))
        progress(number)
    return tuple(rows)


def _measured(
    read: Callable[[str], bytes], identity: str, measure: Callable[[bytes], Item]
) -> Item | Unparsed:
    try:
        return measure(read(identity))
    except GitError as error:
        return Unparsed(str(error))


def thin(items: Sequence[Item], most: int) -> tuple[Item, ...]:
    """At most `most` of them, evenly spread, the first and the last among them."""
    if len(items) <= most:
        return tuple(items)
    step = (len(items) - 1) / (most - 1)
    return tuple(items[round(index * step)] for index in range(most))
