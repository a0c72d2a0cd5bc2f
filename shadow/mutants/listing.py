"""What mutants there are, as text and as the table of docs/mutants.md."""

from __future__ import annotations

from collections.abc import Sequence

from shadow.mutants.registry import Mutant
from shadow.mutants.report import declared


def as_text(mutants: Sequence[Mutant]) -> str:
    """One mutant a paragraph: name, kind, workload, where it is to be found, and the bug it is."""
    return "".join(
        f"{mutant.name} ({mutant.kind.value}, {_setting(mutant)})\n"
        f"    {mutant.report}\n"
        f"    declared: {declared(mutant.where)}\n"
        for mutant in mutants
    )


def as_markdown(mutants: Sequence[Mutant]) -> str:
    """A table for each theme (the module that registers them)."""
    lines: list[str] = []
    themes = list(dict.fromkeys(mutant.source for mutant in mutants))
    for theme in themes:
        lines += ["", f"### {theme.rsplit('.', 1)[-1]}", ""]
        lines += [
            "| mutant | fault | what happens (public report) | to be found as | on |",
            "|---|---|---|---|---|",
        ]
        for mutant in mutants:
            if mutant.source == theme:
                cells = (f"`{mutant.name}`", mutant.kind.value, mutant.report, declared(mutant.where))
                lines.append(f"| {' | '.join(map(_cell, (*cells, _setting(mutant))))} |")
    return "\n".join(lines[1:]) + "\n"


def _setting(mutant: Mutant) -> str:
    options = ", ".join(f"{name}={value}" for name, value in mutant.options.items())
    pairing = "" if mutant.pairing == "same" else f", pairing {mutant.pairing}"
    return mutant.workload + (f", {options}" if options else "") + pairing


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("*", "\\*")
