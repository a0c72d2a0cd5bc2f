"""What a check found, as frozen values: findings with their fixes, and the line of the checklist they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from migration.code.source import Edit, Source, apply_edits
from migration.errors import CATALOGUE
from migration.ledger.change import FileChange
from migration.ledger.patch import patch
from migration.recipe_checklist import Waiver

#: `unseen`: the check was wanted and found nothing to look at. `absent`: there is nothing of the kind, or it
#: is for another phase; `detail` says so.
Status = Literal["passed", "failed", "waived", "unseen", "absent"]


@dataclass(frozen=True)
class Place:
    """A line of a file; 0 is the file as a whole."""

    path: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


@dataclass(frozen=True)
class Replacement:
    """`text` in place of what stands from (line, column) to (end_line, end_column), all 1-based, in characters."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True)
class Fix:
    """A mechanical edit of one file that mends a finding; `patch` is the same for `git apply`."""

    title: str
    path: str
    replacements: tuple[Replacement, ...]
    patch: str


def fix(title: str, source: Source, edits: Sequence[Edit]) -> Fix:
    """The Fix of some byte edits."""
    after = apply_edits(source.data, edits)
    text = patch((FileChange(source.path, source.data, after),)).decode("utf-8", "replace")
    return Fix(title, source.path, tuple(_replacement(source, edit) for edit in edits), text)


def _replacement(source: Source, edit: Edit) -> Replacement:
    def spot(offset: int) -> tuple[int, int]:
        line, column = source.place(offset)
        if line > len(source.lines):
            return line, 1
        return line, len(source.lines[line - 1][:column].decode("utf-8", "replace")) + 1

    return Replacement(*spot(edit.start), *spot(edit.end), edit.text.decode("utf-8", "replace"))


@dataclass(frozen=True)
class Finding:
    """One thing that is not as the checklist wants it. `symbol` is the method or name it is about."""

    code: str
    message: str
    place: Place
    symbol: str = ""
    fix: Fix | None = None

    @property
    def title(self) -> str:
        return CATALOGUE[self.code].title

    @property
    def way_out(self) -> str:
        return CATALOGUE[self.code].way_out


@dataclass(frozen=True)
class Seen:
    """The answer of a rule. `looked` counts the places that it judged: with none it has shown nothing.

    `evidence` are the places that show it holds; `note` says in words what was looked at, or why nothing was.
    """

    findings: tuple[Finding, ...] = ()
    looked: int = 0
    evidence: tuple[Place, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Waived:
    finding: Finding
    waiver: Waiver


@dataclass(frozen=True)
class Check:
    """One rule on one slice. `line` is the item's in the recipe, 0 for a rule that always applies."""

    code: str
    rule: str
    title: str
    status: Status
    looked: int
    note: str
    evidence: tuple[Place, ...] = ()
    findings: tuple[Finding, ...] = ()
    waived: tuple[Waived, ...] = ()
    line: int = 0


@dataclass(frozen=True)
class Report:
    """What `migrate check` has to say. `errors` are faults of the checklist itself: nothing is vouched for."""

    slice: str
    phase: str
    found_by: str
    recipe: str
    handler: Place
    checks: tuple[Check, ...]
    errors: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for check in self.checks for finding in check.findings)

    @property
    def waived(self) -> tuple[Waived, ...]:
        return tuple(one for check in self.checks for one in check.waived)

    @property
    def looked(self) -> int:
        return sum(check.looked for check in self.checks)

    def count(self, status: Status) -> int:
        return sum(check.status == status for check in self.checks)

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        where = f"{self.slice}, phase {self.phase} ({self.found_by})"
        if self.errors:
            return f"{where}: {many(len(self.errors), 'error')} in the checklist itself"
        judged = len(self.checks) - self.count("absent")
        counts = f"{many(judged, 'check')} on {self.looked} places"
        if self.findings:
            return f"{where}: {many(len(self.findings), 'finding')} in {counts}"
        waived = f", {len(self.waived)} waived" if self.waived else ""
        return f"{where}: clean, {counts}{waived}"


def many(count: int, word: str) -> str:
    """ "1 line", "2 lines", "2 bodies"."""
    if count == 1:
        return f"{count} {word}"
    return f"{count} {word[:-1]}ies" if word.endswith("dy") else f"{count} {word}s"
