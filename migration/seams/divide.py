"""Parts of a slice that is over the budget: what is closest stays together."""

from __future__ import annotations

from collections.abc import Collection

from migration.seams.graph import ClassGraph
from migration.seams.linkage import merges


def divide(graph: ClassGraph, names: Collection[str], budget: int) -> tuple[frozenset[str], ...]:
    """The methods in as few parts of at most `budget` lines as merging the closest gives, in the order of
    the file. A method longer than the budget is a part of its own."""
    parts = {frozenset((name,)) for name in names}
    for merged in merges(graph, names, budget, loosest=0.0):
        parts = {part for part in parts if not part <= merged} | {merged}
    first = {name: index for index, name in enumerate(graph.nodes)}
    return tuple(sorted(parts, key=lambda part: min(first[name] for name in part)))
