"""The extractability score as a table and one line."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from migration.survey.score import Score


def score(found: Score, console: Console) -> None:
    """What is refused and why, the declared rewrites, and the line that sums it up."""
    refused = [one for one in found.definitions if one.outcome == "refused"]
    if refused:
        table = Table("definition", "line", "kind", "code", "why", title=f"{found.class_name}: refused today")
        for one in refused:
            for index, refusal in enumerate(one.refusals):
                head = (escape(one.name), str(one.line), one.kind) if index == 0 else ("", "", "")
                table.add_row(*head, refusal.code, escape(refusal.message))
        console.print(table)
    for kind, count in found.rewrites:
        console.print(f"  {count} with: {kind}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"{found.class_name}: {found.line}", soft_wrap=True, highlight=False, markup=False)
