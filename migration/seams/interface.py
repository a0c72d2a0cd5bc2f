"""What a cluster of methods needs from the rest of its class, and what that costs.

Counted are the members of its Protocol, but for those that only the cluster and the set-up of the object
use, and the calls that cross its border in either direction. A member that nobody writes once the object is
set up costs half; one that the cluster writes and others use costs half more. Costs are in halves, so that
they are whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from migration.move.moving import mangled
from migration.seams.graph import ClassGraph

#: What a slice costs whatever its interface is: a module, a pull request, a Protocol to read.
FIXED = 24
_CHANGING, _SETTLED, _WRITTEN, _METHOD, _CALL = 2, 1, 1, 2, 2


@dataclass(frozen=True)
class Cluster:
    """Methods in the order of the file with their interface, as far as the class itself shows it.

    `own` are attributes that only the cluster uses, `needs` those that others use too or a base class has; `called` are
    methods of the class that it reaches through the worker. `calls_out` and `calls_in` are pairs (caller,
    callee) across the border.
    """

    names: tuple[str, ...]
    lines: int
    own: frozenset[str]
    needs: frozenset[str]
    called: frozenset[str]
    written: frozenset[str]
    calls_out: tuple[tuple[str, str], ...]
    calls_in: tuple[tuple[str, str], ...]
    cost: int

    @property
    def score(self) -> float:
        """Cost of the interface for each line that moves: less is better."""
        return (self.cost + FIXED) / max(self.lines, 1)


def cluster(graph: ClassGraph, names: Iterable[str]) -> Cluster:
    """The interface of some methods of a class."""
    inside = frozenset(names)
    nodes = [node for node in graph.nodes.values() if node.name in inside]
    attributes = frozenset(a for node in nodes for a in node.attributes)
    own = frozenset(a for a in attributes & (graph.early | graph.late) if graph.users[a] <= inside)
    needs = attributes - own
    out = tuple((n.name, callee) for n in nodes for callee in sorted((n.calls | n.refers) - inside))
    into = tuple((caller, n.name) for n in nodes for caller in graph.callers[n.name] if caller not in inside)
    outside = {callee for _, callee in out}
    # A property or decorated method is reached through the worker even when it moves along.
    through = outside | {name for node in nodes for name in node.refers & inside}
    written = frozenset(a for node in nodes for a in node.written)
    cost = sum(weight(graph, a) for a in needs) + _WRITTEN * len(needs & written)
    cost += _METHOD * len(through) + _CALL * (len(out) + len(into))
    return Cluster(
        tuple(node.name for node in nodes),
        sum(node.lines for node in nodes),
        own,
        needs,
        frozenset(mangled(name, graph.shape.name) for name in through),
        written,
        out,
        into,
        cost,
    )


def weight(graph: ClassGraph, attribute: str) -> int:
    return _CHANGING if attribute in graph.late else _SETTLED
