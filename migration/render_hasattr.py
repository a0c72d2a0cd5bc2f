"""What `migrate inventory --hasattr` prints."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from migration.presence.findings import HasattrFinding, Rewrite

_NOTE = " " * 10
_SHOWN = 3


def hasattr_list(findings: Sequence[HasattrFinding], console: Console, commands: Mapping[str, str]) -> None:
    """For each test the verdict, why, what may stand in its place, and the command that declares the attribute
    where one does; then the counts."""
    lines = ["hasattr and getattr on self", "", "[bold] line verdict test[/]"]
    method = None
    for finding in findings:
        if finding.method != method:
            method = finding.method
            lines += ["", f"[bold]{escape(method)}[/]"]
        lines.append(f"{finding.line:5} {finding.verdict:7} {escape(finding.spelled)}")
        for note in _notes(finding):
            lines += [escape(text) for text in _wrapped(note, console.width)]
        if (command := commands.get(finding.attribute or "")) is not None:
            lines.append(f"{_NOTE}{escape(command)}")
    lines += ["", _counts(findings)]
    console.print("\n".join(lines), soft_wrap=True, highlight=False)


def _notes(finding: HasattrFinding) -> list[str]:
    assumed = finding.assumed
    if assumed is None:
        refused = finding.rewrite.text is None and finding.rewrite.why != finding.reason
        return [
            finding.reason,
            *([f"not rewritten: {finding.rewrite.why}"] if refused else []),
            *_change(finding.rewrite),
        ]
    more = len(assumed.obstacles) - _SHOWN
    obstacles = [*assumed.obstacles[:_SHOWN], *([f"{more} more"] if more > 0 else [])]
    said = assumed.reason if assumed.verdict == "depends" else f"{assumed.verdict}: {assumed.reason}"
    changes = _change(assumed.rewrite) or [f"not rewritten: {assumed.rewrite.why}"]
    return [said, *changes, "not proven: " + "; ".join(obstacles)]


def _change(change: Rewrite) -> list[str]:
    if change.text is None:
        return []
    if change.kind == "capability":
        return [f"capability: {change.text}, with a Protocol for it"]
    declared = f", once `{change.declares}` stands first in __init__" if change.declares else ""
    return [f"{change.kind}: {change.text}{declared}"]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        max(width, 40) - 1,
        initial_indent=_NOTE,
        subsequent_indent=_NOTE + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _counts(findings: Sequence[HasattrFinding]) -> str:
    verdicts = Counter(finding.verdict for finding in findings)
    parts = ", ".join(f"{verdicts[name]} {name}" for name in ("always", "never", "depends"))
    ready = sum(finding.rewrite.kind != "refused" for finding in findings)
    likely = sum(finding.assumed is not None for finding in findings)
    where = "the whole tree" if findings and findings[0].scope == "tree" else "this file only"
    open_ones = f"; {likely} would be decided but for what is named under `not proven`" if likely else ""
    return (
        f"{len(findings)} tests: {parts}; {ready} can be rewritten, {len(findings) - ready} cannot{open_ones}"
        f" (looked at {where})"
    )
