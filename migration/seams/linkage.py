"""Which methods belong together: those that share what few others have.

Two methods are close when they use the same rarely used attributes, call each other or the same helper,
share a rare word in their names, or stand under the same banner. Each such thing counts the less, the
more methods have it. The closest pair is merged again and again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from migration.seams.graph import ClassGraph
from migration.seams.words import root, telling

_CALL, _CHANGING, _SETTLED, _WORD, _BANNER = 1.5, 1.0, 0.6, 0.7, 0.7
#: Added to what the smaller side has at all, so that a method with one common trait is not at home anywhere.
_SMOOTHING = 1.0
#: Pairs less close than this have nothing to do with each other.
LOOSEST = 0.25

Traits = dict[tuple[str, str], float]


def traits(graph: ClassGraph) -> dict[str, Traits]:
    """What each movable method has in common with others, and how much that says."""
    having: dict[tuple[str, str], set[str]] = {}
    weights: dict[tuple[str, str], float] = {}

    def note(kind: str, what: str, names: Collection[str], weight: float) -> None:
        having.setdefault((kind, what), set()).update(names)
        weights[kind, what] = weight

    for attribute, users in graph.users.items():
        note("attribute", attribute, users, _CHANGING if attribute in graph.late else _SETTLED)
    for name in graph.movable:
        note("call", name, (name, *graph.callers[name]), _CALL)
        for word in telling(name):
            note("word", root(word), (name,), _WORD)
        if (section := graph.nodes[name].section) is not None:
            note("banner", section, (name,), _BANNER)
    found: dict[str, Traits] = {name: {} for name in graph.movable}
    for trait in sorted(having):
        names = having[trait] & found.keys()
        if len(names) > 1:
            for name in names:
                found[name][trait] = weights[trait] / (len(names) - 1)
    return found


def merges(
    graph: ClassGraph, names: Collection[str], budget: int, loosest: float = LOOSEST
) -> Iterator[frozenset[str]]:
    """Every cluster of more than one method that comes about, within `budget` lines, closest first."""
    known = traits(graph)
    groups = {index: frozenset((n,)) for index, n in enumerate(n for n in graph.nodes if n in names)}
    shared = {index: known.get(next(iter(group)), {}) for index, group in groups.items()}
    total = {index: sum(found.values()) for index, found in shared.items()}
    lines = {index: graph.lines(group) for index, group in groups.items()}
    close: dict[tuple[int, int], float] = {}

    def consider(one: int, other: int) -> None:
        if lines[one] + lines[other] <= budget:
            small, large = sorted((shared[one], shared[other]), key=len)
            common = sum(value for trait, value in small.items() if trait in large)
            closeness = common / (min(total[one], total[other]) + _SMOOTHING)
            if closeness >= loosest:
                close[one, other] = closeness

    for one in groups:
        for other in range(one):
            consider(other, one)
    while close:
        a, b = max(close, key=lambda pair: (close[pair], -pair[0], -pair[1]))
        fresh = len(shared)
        groups[fresh] = groups.pop(a) | groups.pop(b)
        shared[fresh] = shared[a] | shared[b]
        total[fresh] = sum(shared[fresh].values())
        lines[fresh] = lines[a] + lines[b]
        close = {pair: value for pair, value in close.items() if a not in pair and b not in pair}
        yield groups[fresh]
        for other in groups:
            if other != fresh:
                consider(other, fresh)
