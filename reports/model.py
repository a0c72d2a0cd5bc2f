"""The report model: what a run found, as frozen values. Text and numbers only; renderers decide how it looks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reports.pictures import Picture


class Status(StrEnum):
    """How a run, or one check of it, ended."""

    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"  # the tool itself could not do its work: says nothing about the subject
    SHORT = "short"  # too little was looked at to say "pass"


class Level(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Fact:
    """One named value: a circumstance of the run, or one coordinate of a finding."""

    name: str
    value: str


@dataclass(frozen=True)
class Table:
    """`rows` are all as long as `columns` (ValueError otherwise)."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r}: row {row!r} has not {len(self.columns)} cells")


@dataclass(frozen=True)
class Finding:
    """One thing found. `where` holds its coordinates, most significant first."""

    code: str
    level: Level
    message: str
    where: tuple[Fact, ...] = ()
    expected: str | None = None
    actual: str | None = None
    hint: str | None = None


@dataclass(frozen=True)
class Check:
    """One thing that was checked, with how many values it looked at."""

    name: str
    status: Status
    count: int
    detail: str = ""


@dataclass(frozen=True)
class Verdict:
    """The answer in one line, and the exit code of the command that gives it."""

    status: Status
    exit_code: int
    headline: str


@dataclass(frozen=True)
class Report:
    """`findings` may hold fewer than `total_findings`: a report stays bounded, the count stays exact.

    `sides` is what this report calls the two values of a finding.
    """

    title: str
    verdict: Verdict
    facts: tuple[Fact, ...] = ()
    checks: tuple[Check, ...] = ()
    findings: tuple[Finding, ...] = ()
    total_findings: int = 0
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    seconds: float = 0.0
    sides: tuple[str, str] = ("expected", "actual")

    def __post_init__(self) -> None:
        if self.total_findings < len(self.findings):
            raise ValueError(f"total_findings {self.total_findings} < {len(self.findings)} findings listed")
