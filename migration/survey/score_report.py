"""The score in the terminal and as JSON."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from migration.errors import CATALOGUE
from migration.survey.score import Score

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = 1


def score_json(score: Score) -> dict[str, Any]:
    """The score and each definition, ready for `json.dumps`."""
    return {
        "schema": SCHEMA,
        "path": score.path,
        "class": score.class_name,
        "line": score.line,
        "tried": score.tried,
        "movable": score.movable,
        "percent": score.percent,
        "named": score.count("named"),
        "host": score.count("host"),
        "refused": score.count("refused"),
        "stubs": score.count("stub"),
        "codes": dict(score.refusals),
        "rewrites": dict(score.rewrites),
        "definitions": [dataclasses.asdict(one) for one in score.definitions],
    }


def print_score(score: Score, console: Console) -> None:
    """What is refused and why, the declared rewrites, how the definitions move by kind, and the line."""
    from rich.markup import escape
    from rich.table import Table

    refused = [one for one in score.definitions if one.outcome == "refused"]
    if refused:
        table = Table("definition", "line", "code", "why", "way out", title="Refused", title_justify="left")
        for one in refused:
            for refusal in one.refusals:
                why = f"{CATALOGUE[refusal.code].title}: {refusal.message}"
                line = str(refusal.line or one.line)
                table.add_row(one.name, line, refusal.code, escape(why), escape(refusal.way_out))
        console.print(table)
    if score.rewrites:
        rewrites = Table("declared rewrite", title="Moved with a declared rewrite", title_justify="left")
        rewrites.add_column("definitions", justify="right")
        for kind, count in score.rewrites:
            rewrites.add_row(kind, str(count))
        console.print(rewrites)
    kinds = Table(title="Definitions", title_justify="left")
    kinds.add_column("kind")
    for name in ("tried", "named handles", "host handle", "refused"):
        kinds.add_column(name, justify="right")
    for kind in dict.fromkeys(one.kind for one in score.definitions):
        found = [one.outcome for one in score.definitions if one.kind == kind and one.outcome != "stub"]
        counts = [found.count("named"), found.count("host"), found.count("refused")]
        kinds.add_row(kind, str(len(found)), *(str(count or "") for count in counts))
    console.print(kinds)
    console.print(f"{score.class_name}: {score.line}", soft_wrap=True, highlight=False, markup=False)
