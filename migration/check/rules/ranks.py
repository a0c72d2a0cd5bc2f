"""Every rank makes the same collectives."""

from __future__ import annotations

from migration.check.model import Finding, Seen, many
from migration.check.ranks import Collectives, partings
from migration.check.rules.base import Rule
from migration.check.subject import Subject
from migration.recipe_checklist import Item


def collectives(subject: Subject, item: Item) -> Seen:
    """Where a condition may differ between ranks, both ways make the same collectives."""
    functions = {
        method.name: method.node for method in (*subject.shape.methods, *(m for _, m in subject.all_methods))
    }
    known = Collectives(
        (subject.names, subject.worker_names),
        functions,
        frozenset(text.rpartition(".")[2] for text in item.texts("rank_local")),
        frozenset(text.rpartition(".")[2] for text in item.texts("agreed")),
    )
    looked, found, evidence = 0, [], []
    for symbol, node in subject.functions():
        parts, count = partings(node, known)
        looked += count
        if count and not parts:
            evidence.append(subject.at(node))
        for part in parts:
            one, other = (", ".join(names) or "nothing" for names in (part.one, part.other))
            message = f"ranks may part by {part.condition}: one way makes {one}, the other {other}"
            found.append(Finding("MG638", message, subject.at(part.node), symbol))
    note = (
        f"{many(looked, 'call')} that every rank must make" if looked else "the handler makes no collective"
    )
    return Seen(tuple(found), looked, tuple(evidence[:3]), note)


RULES = (
    Rule(
        "MG638",
        "collectives",
        "No collective depends on what differs between ranks",
        collectives,
        always=True,
    ),
)
