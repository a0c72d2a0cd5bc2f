"""Methods whose names are hard to tell apart: `onhold` and `on_hold`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

#: Shorter names differ by a letter too often to mean anything.
LONG_NAME = 8


@dataclass(frozen=True, order=True)
class NearDuplicate:
    """`difference`: `underscores` inside the name, only a `leading underscore`, or `one letter`."""

    first: str
    second: str
    difference: Literal["underscores", "leading underscore", "one letter"]


def near_duplicates(names: Iterable[str]) -> tuple[NearDuplicate, ...]:
    """Pairs of different names that are equal without their underscores, or one letter apart when long."""
    distinct = sorted({name for name in names if not (name.startswith("__") and name.endswith("__"))})
    found: dict[tuple[str, str], NearDuplicate] = {}
    same: dict[str, list[str]] = defaultdict(list)
    for name in distinct:
        same[name.replace("_", "")].append(name)
    for group in same.values():
        for index, first in enumerate(group):
            for second in group[index + 1 :]:
                inside = first.lstrip("_") != second.lstrip("_")
                found[first, second] = NearDuplicate(
                    first, second, "underscores" if inside else "leading underscore"
                )
    for first, second in _one_letter_apart([name for name in distinct if len(name) >= LONG_NAME]):
        if {first.lstrip("_")[:3], second.lstrip("_")[:3]} != {"get", "set"}:
            found.setdefault((first, second), NearDuplicate(first, second, "one letter"))
    return tuple(sorted(found.values()))


def _one_letter_apart(names: list[str]) -> set[tuple[str, str]]:
    """Sorted pairs at edit distance one: each name is filed under what is left without one letter."""
    known = set(names)
    replaced: dict[tuple[int, str], list[str]] = defaultdict(list)
    pairs: set[tuple[str, str]] = set()
    for name in names:
        for index in range(len(name)):
            rest = name[:index] + name[index + 1 :]
            replaced[index, rest].append(name)
            if rest in known:
                pairs.add((min(name, rest), max(name, rest)))
    for group in replaced.values():
        pairs.update((a, b) for i, a in enumerate(group) for b in group[i + 1 :] if a != b)
    return {(min(pair), max(pair)) for pair in pairs}
