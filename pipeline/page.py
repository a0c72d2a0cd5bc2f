"""One page for one pull request. Pure: what was found in, a report and its Markdown out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from migration.check.model import many
from pipeline.branches import Commit
from pipeline.compared import Compared
from pipeline.errors import DONE, FOUND, SHORT, worst
from pipeline.running import Ran
from pipeline.stages import Stage
from reports import Report, to_markdown
from reports.model import Check, Fact, Finding, Level, Status, Table, Verdict

#: By the first words of the command: what it says it has looked at.
_COUNTS = {
    "migrate verify": re.compile(r"^\S+: holds: (\d+) method", re.M),
    "migrate check": re.compile(r"^## .* on (\d+) places", re.M),
    "pytest": re.compile(r"(\d+) passed"),
    "shadow": re.compile(r"Equal: ([\d,]+) values"),
    "python -m": re.compile(r"(\d+) compared,"),
}
_STATUS = {DONE: Status.PASS, FOUND: Status.FAIL, SHORT: Status.SHORT}


@dataclass(frozen=True)
class Part:
    """One commit of the pull request, and what was done with it. `lines` are (file, added, deleted)."""

    stage: Stage
    commit: Commit
    lines: tuple[tuple[str, int, int], ...]
    verify: Ran
    check: Ran
    tests: Ran | None

    @property
    def rans(self) -> tuple[Ran, ...]:
        return (self.verify, self.check, *((self.tests,) if self.tests is not None else ()))


@dataclass(frozen=True)
class Size:
    """Lines of a file: before the first slice, before this pull request, after it."""

    path: str
    first: int
    before: int
    after: int


@dataclass(frozen=True)
class PullRequest:
    """`codemod` are (phase, seconds of processor time) of the slice so far, as planned in this run."""

    name: str
    parts: tuple[Part, ...]
    compared: Compared | None
    sizes: tuple[Size, ...]
    codemod: tuple[tuple[str, float], ...]
    moved: tuple[str, ...]
    seconds: float

    @property
    def rans(self) -> tuple[Ran, ...]:
        own = tuple(ran for part in self.parts for ran in part.rans)
        return own + (self.compared.rans if self.compared is not None else ())

    @property
    def code(self) -> int:
        """The worst of its steps: 2, 1, 3, 0."""
        compared = [self.compared.code] if self.compared is not None else []
        return worst([*(ran.code for ran in self.rans), *compared])


def report(one: PullRequest) -> Report:
    """Verdict, steps, what moved, lines, compared calls, sizes, time."""
    stage = one.parts[-1].stage
    return Report(
        title=f"pull request {one.name}, {stage.phase} of slice {stage.recipe.name}",
        verdict=Verdict(_status(one.code), one.code, _headline(one)),
        facts=_facts(one),
        checks=tuple(_check(ran) for ran in one.rans) + _compared_checks(one.compared),
        findings=(found := _findings(one)),
        total_findings=len(found),
        tables=_tables(one),
        seconds=one.seconds,
    )


def markdown(one: PullRequest) -> str:
    """The report, then the proof as `migrate verify` prints it and the checklist as `migrate check` does."""
    lines = [to_markdown(report(one))]
    for part in one.parts:
        where = f" ({part.stage.label})" if len(one.parts) > 1 else ""
        lines += [f"## Proof{where}", "", "```", part.verify.output.rstrip(), "```", ""]
        lines += [part.check.output.rstrip(), ""]
    return "\n".join(lines)


def _status(code: int) -> Status:
    return _STATUS.get(code, Status.ERROR)


def _headline(one: PullRequest) -> str:
    added = sum(plus for part in one.parts for _, plus, _ in part.lines)
    deleted = sum(minus for part in one.parts for _, _, minus in part.lines)
    methods = many(sum(len(part.stage.rows) for part in one.parts), "method")
    size = f"{methods}, +{added} -{deleted} lines"
    if len(one.parts) > 1:
        size += f" in {len(one.parts)} parts"
    bad = [ran.name for ran in one.rans if ran.code]
    if one.compared is not None and one.compared.code and not any(r.code for r in one.compared.rans):
        bad.append("the gate's own comparison")
    if bad:
        return f"not to be merged: {', '.join(bad)}; {size}"
    calls = f", {one.compared.calls:,} calls compared and equal" if one.compared is not None else ""
    return f"holds: {size}{calls}"


def _check(ran: Ran) -> Check:
    return Check(ran.name, _status(ran.code), _count(ran), _said(ran))


def _count(ran: Ran) -> int:
    """How much the step looked at: methods proved, places of a checklist, tests passed, values compared."""
    pattern = next(found for word, found in _COUNTS.items() if ran.command.startswith(word))
    return sum(int(number.replace(",", "")) for number in pattern.findall(ran.output))


def _said(ran: Ran) -> str:
    if ran.command.startswith("migrate check"):
        return ran.output.splitlines()[0].removeprefix("## Pre-merge checklist: ") if ran.output else ""
    if ran.command.startswith("migrate verify"):
        heads = [line.split(": ") for line in ran.output.splitlines() if ": " in line and line[0] != " "]
        return ", ".join(" ".join(words[:2]) for words in heads)
    if ran.command.startswith("shadow"):
        boxed = [line.strip("│ ") for line in ran.output.splitlines() if line.startswith("│")]
        return boxed[0].strip() if boxed else ran.last_line
    return ran.last_line


def _compared_checks(compared: Compared | None) -> tuple[Check, ...]:
    """What the gate compared call by call, and the clean-up between decode and prefill."""
    if compared is None:
        return ()
    gates = [
        Check(
            f"gate {gate.gate}",
            _status(worst((gate.verdict, DONE if gate.compared else SHORT))),
            gate.compared,
            gate.line(),
        )
        for gate in compared.gates
    ]
    if not gates:
        gates = [Check("gate", Status.SHORT, 0, "it wrote no report: nothing was compared")]
    cleanup = [
        Check(f"invariant {name}", Status.PASS if count else Status.SHORT, count, "looked at, in both runs")
        for name, count in compared.cleanup
    ]
    return (*gates, *cleanup)


def _findings(one: PullRequest) -> tuple[Finding, ...]:
    """A finding for each step that did not end well, with the command that shows more."""
    return tuple(
        Finding(
            ran.name,
            Level.ERROR,
            _said(ran) or f"it ended with {ran.code}",
            (Fact("exit code", str(ran.code)),),
            hint=f"again: {ran.command}",
        )
        for ran in one.rans
        if ran.code
    )


def _facts(one: PullRequest) -> tuple[Fact, ...]:
    facts = [
        Fact(part.stage.label, f"commit {part.commit.id[:10]}, branch migrate/{part.stage.label}")
        for part in one.parts
    ]
    facts.append(Fact("before it", f"commit {one.parts[0].commit.parent[:10]}"))
    if one.compared is not None:
        facts += [Fact("shadow device", one.compared.device), Fact("shadow scale", one.compared.scale)]
    facts.append(Fact("branches that moved", "; ".join(one.moved) or "none"))
    return tuple(facts)


def _tables(one: PullRequest) -> tuple[Table, ...]:
    moved = tuple((name, said) for part in one.parts for name, said in part.stage.rows)
    lines = tuple(
        (part.stage.label, path, f"+{plus}", f"-{minus}")
        for part in one.parts
        for path, plus, minus in part.lines
    )
    sizes = tuple((s.path, f"{s.first:,}", f"{s.before:,}", f"{s.after:,}") for s in one.sizes)
    tables = [
        Table("What moved", ("method", "what became of it"), moved),
        Table("Changed lines", ("part", "file", "added", "deleted"), lines),
        Table("Sizes in lines", ("file", "before all slices", "before this", "after this"), sizes),
    ]
    if one.compared is not None:
        calls = tuple(
            (name, f"{count.compared:,}") for gate in one.compared.gates for name, count in gate.methods
        )
        tables.append(Table("Compared calls", ("method", "calls compared"), calls))
    tables.append(Table("Time", ("step", "seconds", "of the processor"), _times(one)))
    return tuple(tables)


def _times(one: PullRequest) -> tuple[tuple[str, str, str], ...]:
    rows = [(f"codemod: {phase}", "", f"{seconds:.1f}") for phase, seconds in one.codemod]
    rows += [(ran.name, f"{ran.seconds:.1f}", f"{ran.processor:.1f}") for ran in one.rans]
    whole = sum(seconds for _, seconds in one.codemod) + sum(part.check.processor for part in one.parts)
    phases = ", ".join(phase for phase, _ in one.codemod)
    return (*rows, (f"codemod and check ({phases})", "", f"{whole:.1f}"), ("all", f"{one.seconds:.1f}", ""))
