"""The seams of a class: clusters within a budget of lines, the narrowest interface for what moves first."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable

from migration.seams.graph import ClassGraph
from migration.seams.interface import Cluster, cluster
from migration.seams.linkage import merges

#: A cluster with fewer lines than this part of the budget is not worth a slice of its own.
_SMALLEST_PART = 12


def find_seams(graph: ClassGraph, budget: int, top: int) -> tuple[Cluster, ...]:
    """The best `top` clusters, none of which has a method of another.

    Candidates are single methods, the clusters that come about by merging what is close, and the banner
    sections; each is first grown and trimmed while that makes its interface narrower for its size. Methods
    longer than the budget stand alone, after everything that fits.
    """
    fitting = [name for name in graph.movable if graph.nodes[name].lines <= budget]
    # What takes most of the class along does not take it apart.
    half = graph.lines(fitting) // 2
    most = min(budget, max([half, *(graph.nodes[name].lines for name in fitting)]))
    pool: dict[frozenset[str], Cluster] = {}
    for seed in _seeds(graph, fitting, most):
        for found in (seed, _improved(graph, seed, fitting, most)):
            pool.setdefault(found, cluster(graph, found))
    smallest = min(budget // _SMALLEST_PART, max(graph.lines(fitting) // _SMALLEST_PART, 1))
    chosen = _disjoint(graph, pool.values(), smallest, top)
    long = [cluster(graph, (name,)) for name in graph.movable if graph.nodes[name].lines > budget]
    return (*chosen, *sorted(long, key=_rank))[:top]


def _rank(found: Cluster) -> tuple[float, int, tuple[str, ...]]:
    return found.score, -found.lines, found.names


def _seeds(graph: ClassGraph, fitting: Collection[str], budget: int) -> Iterable[frozenset[str]]:
    yield from (frozenset((name,)) for name in fitting)
    yield from merges(graph, fitting, budget)
    for section in graph.shape.sections:
        names = frozenset(method.name for method in section.methods) & frozenset(fitting)
        if section.title and names and graph.lines(names) <= budget:
            yield names


def _improved(
    graph: ClassGraph, seed: frozenset[str], fitting: Collection[str], budget: int
) -> frozenset[str]:
    """`seed` with methods added that have most of their calls with it, and those left out that have none,
    as long as each step lowers the score."""
    best, names = cluster(graph, seed), seed
    while True:
        steps = [names - {name} for name in best.names if len(names) > 1 and not graph.ties[name] & names]
        steps += [
            names | {name}
            for name in _neighbours(graph, best)
            if name in fitting and 2 * len(graph.ties[name] & names) > len(graph.ties[name])
        ]
        tried = [cluster(graph, step) for step in steps if graph.lines(step) <= budget]
        better = min(tried, key=_rank, default=best)
        if better.score >= best.score:
            return names
        best, names = better, frozenset(better.names)


def _neighbours(graph: ClassGraph, found: Cluster) -> list[str]:
    near = {callee for _, callee in found.calls_out} | {caller for caller, _ in found.calls_in}
    return [name for name in graph.movable if name in near]


def _disjoint(graph: ClassGraph, pool: Iterable[Cluster], smallest: int, top: int) -> list[Cluster]:
    """The best one, then the best of what the others have left, and so on."""
    queue = [(_rank(found), found) for found in pool if found.lines >= smallest]
    heapq.heapify(queue)
    taken: set[str] = set()
    chosen: list[Cluster] = []
    while queue and len(chosen) < top:
        _, found = heapq.heappop(queue)
        left = [name for name in found.names if name not in taken]
        if len(left) == len(found.names):
            chosen.append(found)
            taken.update(left)
        elif left and graph.lines(left) >= smallest and 2 * graph.lines(left) > found.lines:
            rest = cluster(graph, left)
            heapq.heappush(queue, (_rank(rest), rest))
    return chosen
