"""What a cluster of methods needs from the rest of its class, and what that costs.

Counted are the members of its Protocol that other methods use too, and the calls that cross its border
in either direction. What only the cluster and the set-up of the object use is its own and costs nothing;
what nobody writes once the object is set up costs half, as does a method that moves along but is reached
through the worker. Costs are in halves, so that they are whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from migration.move.moving import mangled
from migration.seams.graph import ClassGraph

#: What a slice costs whatever its interface is: a module, a pull request, a Protocol to read.
FIXED = 24
_CHANGING, _SETTLED, _METHOD, _THROUGH, _CALL = 2, 1, 2, 1, 2


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
    cost = sum(weight(graph, a) for a in needs) + _CALL * (len(out) + len(into))
    cost += _METHOD * len(outside) + _THROUGH * len(through - outside)
    return Cluster(
        tuple(node.name for node in nodes),
        sum(node.lines for node in nodes),
        own,
        needs,
        frozenset(mangled(name, graph.shape.name) for name in through),
        frozenset(a for node in nodes for a in node.written),
        out,
        into,
        cost,
    )


def weight(graph: ClassGraph, attribute: str) -> int:
    return _CHANGING if attribute in graph.late else _SETTLED


def predicted_members(
    graph: ClassGraph, found: Cluster, through_worker: Collection[str] = ()
) -> frozenset[str]:
    """Members of the Protocols. `through_worker` are methods of the cluster that moved code must call there."""
    again = {
        mangled(callee, graph.shape.name)
        for name in found.names
        for callee in graph.nodes[name].calls & set(through_worker)
    }
    return found.own | found.needs | found.called | again
