"""How the parts of a class hang together: calls, shared attributes, and who writes what others read.

The parts are the sections under banners; in a class without banners, clusters of methods that use
the same attributes. `__init__` is left out: every attribute starts there, which couples nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from migration.survey.clusters import clusters


@dataclass(frozen=True)
class MethodUse:
    """What coupling needs to know of one method. `calls` counts the places of each call."""

    name: str
    lines: int
    reads: frozenset[str]
    writes: frozenset[str]
    calls: Mapping[str, int]


@dataclass(frozen=True)
class Group:
    label: str
    methods: tuple[str, ...]
    lines: int
    #: attributes that no other group touches
    private: tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """From one group to another. `shared` is the same in both directions."""

    source: str
    target: str
    calls: int
    called: tuple[str, ...]
    shared: tuple[str, ...]
    written_for: tuple[str, ...]

    @property
    def strength(self) -> int:
        return self.calls + len(self.shared) + len(self.written_for)


@dataclass(frozen=True)
class Coupling:
    """`pairs` has every ordered pair with something between it, the strongest first."""

    basis: Literal["banners", "clusters"]
    groups: tuple[Group, ...]
    pairs: tuple[Pair, ...]

    def pair(self, source: str, target: str) -> Pair | None:
        return next((p for p in self.pairs if (p.source, p.target) == (source, target)), None)


def coupling(sections: Iterable[tuple[str, Iterable[MethodUse]]], *, banners: bool) -> Coupling:
    """Coupling between labelled sections, or between clusters of all their methods.

    A name that is defined twice counts for the definition that wins: the last.
    """
    parts = [(label, [m for m in methods if m.name != "__init__"]) for label, methods in sections]
    if not banners:
        parts = _clustered([method for _, methods in parts for method in methods])
    parts = [(label, methods) for label, methods in parts if methods]
    owner = {method.name: label for label, methods in parts for method in methods}
    reads = {label: frozenset().union(*(m.reads for m in methods)) for label, methods in parts}
    writes = {label: frozenset().union(*(m.writes for m in methods)) for label, methods in parts}
    touched = {label: reads[label] | writes[label] for label, _ in parts}
    calls: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for label, methods in parts:
        for method in methods:
            for name, count in method.calls.items():
                if name in owner:
                    calls[label, owner[name]][name] += count
    pairs = []
    for source, _ in parts:
        for target, _ in parts:
            if source == target:
                continue
            called = calls[source, target]
            shared = touched[source] & touched[target]
            if called or shared:
                pairs.append(
                    Pair(
                        source,
                        target,
                        called.total(),
                        tuple(sorted(called)),
                        tuple(sorted(shared)),
                        tuple(sorted(writes[source] & reads[target])),
                    )
                )
    users = Counter(name for found in touched.values() for name in found)
    groups = tuple(
        Group(
            label,
            tuple(dict.fromkeys(method.name for method in methods)),
            sum(method.lines for method in methods),
            tuple(sorted(name for name in touched[label] if users[name] == 1)),
        )
        for label, methods in parts
    )
    pairs.sort(key=lambda pair: (-pair.strength, pair.source, pair.target))
    return Coupling("banners" if banners else "clusters", groups, tuple(pairs))


def _clustered(methods: list[MethodUse]) -> list[tuple[str, list[MethodUse]]]:
    by_name: dict[str, list[MethodUse]] = defaultdict(list)
    for method in methods:
        by_name[method.name].append(method)
    uses = {n: frozenset().union(*(m.reads | m.writes for m in found)) for n, found in by_name.items()}
    calls = {n: frozenset(name for m in found for name in m.calls) for n, found in by_name.items()}
    frequency = Counter(name for found in uses.values() for name in found)
    named: list[tuple[str, list[MethodUse]]] = []
    alone: list[MethodUse] = []
    for group in clusters(uses, calls):
        members = [method for name in group for method in by_name[name]]
        if len(group) == 1:
            alone += members
        else:
            named.append((_label(group, uses, frequency, {label for label, _ in named}), members))
    return [*named, ("(on their own)", alone)]


def _label(
    group: tuple[str, ...], uses: Mapping[str, frozenset[str]], frequency: Counter[str], taken: set[str]
) -> str:
    """The attributes that say most about a group: used by many inside and few outside."""
    inside = Counter(name for method in group for name in uses[method])
    ranked = sorted(inside, key=lambda name: (-(inside[name] ** 2) / frequency[name], name))
    label = ", ".join(ranked[:2]) or group[0]
    return label if label not in taken else f"{label} ({group[0]})"
