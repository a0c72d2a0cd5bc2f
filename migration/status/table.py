"""The status in a terminal: a row a slice, and below it what says so."""

from __future__ import annotations

from datetime import UTC, datetime

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from migration.status.phase import Phase, Standing
from migration.status.since import Since
from migration.status.survey import SliceStatus, TreeStatus

_COLOURS = {Phase.ABSENT: "dim", Phase.PORTED: "cyan", Phase.GATED: "yellow", Phase.CLEANED: "green"}
_VERDICTS = {"pass": "green", "equal": "green"}


def show(status: TreeStatus) -> None:
    """Print the table, the evidence and what could not be told."""
    console = Console()
    table = Table(
        "slice", "the tree is", "port", "gate", "cleanup", "lines left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for one in status.slices:
        table.add_row(*_row(one, status.git_fault))
    console.print(table)
    for one in status.slices:
        for text in _evidence(one, status.git_fault):
            console.print(Text.assemble((f"{one.name}: ", "bold"), text), soft_wrap=True, highlight=False)
    if status.git_fault:
        said = f"git: {status.git_fault}; which commit brought what, and when, is not known"
        console.print(said, style="yellow", highlight=False, markup=False)


def _row(one: SliceStatus, fault: str) -> tuple[str | Text, ...]:
    stands = one.standing
    if not isinstance(stands, Standing):
        return (escape(one.name), Text("cannot tell", style="red"), "?", "?", "?", "?")
    brought = dict(one.brought)
    cells = []
    for phase in (Phase.PORTED, Phase.GATED, Phase.CLEANED):
        if phase in brought:
            cells.append(_when(brought[phase]))
        elif phase > stands.phase:
            cells.append("-")
        elif fault:
            cells.append("? (no git)")
        elif phase is Phase.GATED and stands.phase is Phase.CLEANED:
            cells.append("- (never seen)")
        else:
            cells.append("not committed")
    words = Text(stands.words, style=_COLOURS[stands.phase])
    return (escape(one.name), words, *cells, f"{stands.left:,}")


def _when(found: Since) -> str:
    day = datetime.fromtimestamp(found.time, UTC).strftime("%Y-%m-%d")
    return f"{found.commit[:7]} {day}\n{_days(found.days)}"


def _days(days: int) -> str:
    return "today" if not days else f"{days:,} day{'' if days == 1 else 's'}"


def _evidence(one: SliceStatus, fault: str) -> list[Text]:
    stands = one.standing
    if not isinstance(stands, Standing):
        said = [Text(stands.why)]
        if one.proof:
            said.append(Text(f"proof {one.proof.path}: {'; '.join(one.proof.reasons)}"))
        return said
    lines = [Text(stands.note)] if stands.note else []
    if one.proof is not None:
        word = {True: ("holds", "green"), False: ("broken", "red"), None: ("cannot be verified", "red")}
        of = f" ({one.proof.phase})" if one.proof.phase else ""
        why = f": {'; '.join(one.proof.reasons[:3])}" if one.proof.reasons else ""
        lines.append(Text.assemble(f"proof {one.proof.path}{of} ", word[one.proof.holds], why))
    elif stands.phase is not Phase.ABSENT:
        lines.append(Text("no proof file: that the code moved unchanged is not shown", style="yellow"))
    for flag in one.flags[::2]:
        age = _days(flag.since.days) if flag.since else "age not known" if fault else "not committed"
        names = f"{flag.name}, {flag.name.removesuffix('NATIVE')}COMPARE"
        lines.append(Text(f"open flags {names}: {age}"))
    for run in one.evidence[:2]:
        stale = {True: "", False: ", of another version of the file", None: ""}[run.current]
        style = _VERDICTS.get(run.verdict, "red")
        lines.append(
            Text.assemble(f"shadow {run.path}: ", (run.verdict, style), f", {run.total:,} compared{stale}")
        )
    if stands.phase in (Phase.PORTED, Phase.GATED) and not one.evidence:
        lines.append(Text("no shadow run: nothing was compared", style="yellow"))
    return lines
